// Package page renders the HTML page of a pool: its ladder, slot by slot, and its servers. It
// knows only what the page shows.
//
// It does without html/template, which would add 0.7 MB to the program of each client.
package page

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// A View is the content of the page.
type View struct {
	Name    string
	Summary []string // paragraphs
	Slots   []Slot
	Servers []Server
	More    int // servers that are not listed
}

// MaxServers limits the servers on the page. Those with a connection are always listed.
const MaxServers = 500

// A Slot is a row of the ladder.
type Slot struct {
	Number   int32
	Server   string
	Age      time.Duration
	Busy     bool
	Leaving  bool
	Requests uint64
}

// A Server is a row of the servers.
type Server struct {
	Address     string
	Name        string
	Zone        string
	Number      int
	Slots       int
	Connections int
	Streams     int
	State       string
}

// Write writes the page.
func (v *View) Write(w io.Writer) error {
	var b strings.Builder
	name := html.EscapeString(v.Name)
	fmt.Fprintf(&b, head, name, name)
	for _, paragraph := range v.Summary {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(paragraph))
	}
	b.WriteString(slotsHead)
	for _, s := range v.Slots {
		class, state := "", "free"
		if s.Busy {
			class, state = ` class="busy"`, "busy"
		}
		if s.Leaving {
			state += ", leaving"
		}
		writeRow(&b, class, s.Number, s.Server, s.Age, s.Requests, state)
	}
	if len(v.Slots) == 0 {
		b.WriteString(noSlots)
	}
	b.WriteString(serversHead)
	for _, s := range v.Servers {
		writeRow(&b, "", s.Number, s.Address, s.Zone, s.Name, s.Slots, s.Connections, s.Streams, s.State)
	}
	if len(v.Servers) == 0 {
		b.WriteString(noServers)
	}
	b.WriteString("</table>\n")
	if v.More > 0 {
		fmt.Fprintf(&b, "<p>And %d without a connection.</p>\n", v.More)
	}
	b.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRow writes a row of a table. Cells that are not strings are numbers.
func writeRow(b *strings.Builder, class string, cells ...any) {
	fmt.Fprintf(b, "<tr%s>", class)
	for _, cell := range cells {
		if text, ok := cell.(string); ok {
			fmt.Fprintf(b, "<td>%s</td>", html.EscapeString(text))
		} else {
			fmt.Fprintf(b, `<td class="n">%v</td>`, cell)
		}
	}
	b.WriteString("</tr>\n")
}

const (
	head = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Boxcar ladder of %s</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; width: 100%%; }
th, td { border-bottom: 1px solid #ddd; padding: .2em .6em; text-align: left; }
.n { font-variant-numeric: tabular-nums; text-align: right; }
.busy { background: #fff3d6; }
</style>
</head>
<body>
<h1>%s</h1>
`
	slotsHead = `<h2>Slots, in the order of use</h2>
<table>
<tr><th class="n">slot</th><th>server</th><th class="n">age</th><th class="n">requests</th><th>state</th></tr>
`
	noSlots = `<tr><td colspan="5">none</td></tr>
`
	serversHead = `</table>
<h2>Servers</h2>
<table>
<tr><th class="n">number</th><th>address</th><th>zone</th><th>name</th><th class="n">slots</th><th class="n">connections</th><th class="n">streams</th><th>state</th></tr>
`
	noServers = `<tr><td colspan="8">none</td></tr>
`
)
