package boxcarrpc

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"
)

// Handler serves a plain HTML page with the pool's ladder, slot by slot, and its servers.
func (p *Pool) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := ladderPage.Execute(w, p.view()); err != nil {
			p.options.Logger.Debug("cannot send the ladder page", "error", err)
		}
	})
}

type poolView struct {
	Name    string
	Zone    string
	Stats   PoolStats
	Slots   []slotView
	Servers []serverView
	More    int
}

// pageServers limits the servers on the page. Those with a connection are always listed.
const pageServers = 500

type slotView struct {
	Number   int32
	Server   string
	Age      time.Duration
	Busy     bool
	Leaving  bool
	Requests uint64
}

type serverView struct {
	Address     string
	Name        string
	Zone        string
	Number      int
	Slots       int
	Connections int
	Streams     int
	State       string
}

// OtherZone returns the share of the attempts that left the zone.
func (v poolView) OtherZone() string {
	return percent(v.Stats.OtherZone, v.Stats.Calls-v.Stats.Rejected+v.Stats.Retries+v.Stats.Hedges)
}

func percent(part, all uint64) string {
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(max(all, part, 1)))
}

// view returns the content of the page, with the slots in the order of use.
func (p *Pool) view() poolView {
	v := poolView{Name: p.options.Name, Zone: p.options.Zone, Stats: p.Stats()}
	v.Slots = p.slots.views()
	m := &p.members
	m.mu.Lock()
	for _, peer := range m.mu.peers {
		switch {
		case peer == nil:
		case len(v.Servers) >= pageServers && len(peer.transports) == 0:
			v.More++
		default:
			v.Servers = append(v.Servers, m.viewServer(peer))
		}
	}
	m.mu.Unlock()
	slices.SortFunc(v.Slots, func(a, b slotView) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Server, b.Server))
	})
	slices.SortFunc(v.Servers, func(a, b serverView) int { return cmp.Compare(a.Number, b.Number) })
	return v
}

func (m *members) viewServer(peer *poolPeer) serverView {
	info := m.slots.peer(peer.index)
	v := serverView{
		Address: peer.address, Zone: peer.zoneName(), Number: peer.server.Number, Slots: info.Held, Connections: len(peer.transports),
		State: "ready",
	}
	for _, t := range peer.transports {
		v.Streams += t.streams
	}
	if len(peer.transports) > 0 {
		v.Name = peer.transports[0].hello.Name
	}
	switch {
	case !info.Member:
		v.State = "left the set"
	case info.Draining:
		v.State = "draining"
	case info.Isolated && peer.failure != nil:
		v.State = "in quarantine: " + peer.failure.Error()
	case info.Isolated:
		v.State = "in quarantine"
	case info.Ejected:
		v.State = "fails requests"
	case info.Suspect:
		v.State = "silent"
	case info.Paused:
		v.State = "refused a request"
	case len(peer.transports) == 0:
		v.State = "not connected"
	case !info.Trusted:
		v.State = "has not answered a request yet"
	case info.Borrowed:
		v.State = "borrowed, because the subset was dead or full"
	}
	return v
}

var ladderPage = template.Must(template.New("ladder").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Boxcar ladder of {{.Name}}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; width: 100%; }
th, td { border-bottom: 1px solid #ddd; padding: .2em .6em; text-align: left; }
.n { font-variant-numeric: tabular-nums; text-align: right; }
.busy { background: #fff3d6; }
</style>
</head>
<body>
<h1>{{.Name}}</h1>
{{with .Stats}}<p>{{.Slots}} of {{.Size}} slots, {{.Busy}} busy, {{.Waiting}} calls waiting, {{.Streams}} streams;
{{.Live}} of {{.Servers}} servers live, {{.Known}} known, {{.Transports}} connections.
{{.Calls}} calls, {{.Failed}} failed, {{.Rejected}} of these refused; {{.Retries}} further attempts.
{{.Leases}} slots leased, {{.Swaps}} for a higher one; {{.Lost}} lost, {{.Broken}} connections broken.</p>{{end}}
{{if .Zone}}<p>Zone {{.Zone}}: {{.OtherZone}} of all attempts went to servers of other zones.</p>
{{end}}<h2>Slots, in the order of use</h2>
<table>
<tr><th class="n">slot</th><th>server</th><th class="n">age</th><th class="n">requests</th><th>state</th></tr>
{{range .Slots}}<tr{{if .Busy}} class="busy"{{end}}><td class="n">{{.Number}}</td><td>{{.Server}}</td><td class="n">{{.Age}}</td><td class="n">{{.Requests}}</td><td>{{if .Busy}}busy{{else}}free{{end}}{{if .Leaving}}, leaving{{end}}</td></tr>
{{else}}<tr><td colspan="5">none</td></tr>
{{end}}</table>
<h2>Servers</h2>
<table>
<tr><th class="n">number</th><th>address</th><th>zone</th><th>name</th><th class="n">slots</th><th class="n">connections</th><th class="n">streams</th><th>state</th></tr>
{{range .Servers}}<tr><td class="n">{{.Number}}</td><td>{{.Address}}</td><td>{{.Zone}}</td><td>{{.Name}}</td><td class="n">{{.Slots}}</td><td class="n">{{.Connections}}</td><td class="n">{{.Streams}}</td><td>{{.State}}</td></tr>
{{else}}<tr><td colspan="8">none</td></tr>
{{end}}</table>
{{with .More}}<p>And {{.}} without a connection.</p>
{{end}}</body>
</html>
`))
