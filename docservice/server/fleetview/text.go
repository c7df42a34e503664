// Package fleetview shows the state of a sharded collection (package
// docservice/placement/fleet) to people: as lines of text, and as a page of a daemon, which
// also serves it as JSON.
package fleetview

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"docstore/docservice/placement/fleet"
	"docstore/internal/units"
)

// Lines returns the state of a collection as text: a summary, the columns by rows, and the
// moves in progress.
func Lines(f *fleet.Fleet) []string {
	lines := append(Summary(f), "")
	lines = append(lines, table("column\tshards\trow\tserver\tzone\tstate\tready\tfetched\tused\tmanifest\t", func(row func(string, ...any)) {
		for i := range f.Columns {
			columnRows(&f.Columns[i], row)
		}
	})...)
	if len(f.Moves) == 0 {
		return lines
	}
	lines = append(lines, "")
	return append(lines, table("move of shard\tfrom\tto\tfetched\tper second\tservers ready\t", func(row func(string, ...any)) {
		for _, m := range f.Moves {
			row("%d\t%s\t%s\t%s\t%s\t%d of %d\t", m.Shard, m.From, m.To, part(m.Fetched, m.Bytes), Rate(m), m.Ready, m.Servers)
		}
	})...)
}

// Summary returns sentences about a collection.
func Summary(f *fleet.Fleet) []string {
	lines := []string{
		fmt.Sprintf("%s: %s of %s in %s, epoch %d of generation %s", f.Collection, units.FormatCountOf(int64(f.Shards), "shard", "shards"),
			units.FormatBytes(f.Bytes), units.FormatCountOf(int64(len(f.Columns)), "column", "columns"), f.Epoch, f.Generation),
		"placed by " + cmp.Or(f.Leader, "no daemon: nothing moves"),
	}
	if f.Announced > 0 {
		lines[1] += fmt.Sprintf("; manifest %d is the newest target", f.Announced)
	}
	if f.Unplaced > 0 {
		lines = append(lines, units.FormatCountOf(int64(f.Unplaced), "shard has", "shards have")+" no column: run docserviced placement apply")
	}
	if f.Waiting > 0 {
		lines = append(lines, units.FormatCountOf(int64(f.Waiting), "move of the plan waits", "moves of the plan wait"))
	}
	if f.Paused {
		lines = append(lines, "moves are paused: run docserviced placement resume")
	}
	return lines
}

func columnRows(c *fleet.Column, row func(string, ...any)) {
	name, shards := c.Name, strconv.Itoa(len(c.Shards))
	if c.Drained {
		name += " (drained)"
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		row("%s\t%s\t%d\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\t", name, shards, r.Row, r.Address, cmp.Or(r.Zone, "-"), r.State(), r.Ready, r.Shards,
			part(r.Fetched, r.Bytes), part(r.Used, r.Limit), Manifests(*r))
		name, shards = "", ""
	}
	for _, n := range c.Free {
		row("%s\t%s\t%d\tfree\t\t\t\t\t\t\t", name, shards, n)
		name, shards = "", ""
	}
	if len(c.Rows)+len(c.Free) == 0 {
		row("%s\t%s\t\tno server\t\t\t\t\t\t\t", name, shards)
	}
}

// Manifests describes the manifests of a server: 17, or "16 of 17" if it lags.
func Manifests(r fleet.Row) string {
	switch {
	case r.Target == 0:
		return "-"
	case r.Served == r.Target:
		return strconv.FormatUint(r.Served, 10)
	}
	return fmt.Sprintf("%d of %d", r.Served, r.Target)
}

// Rate describes the rate of a move.
func Rate(m fleet.Move) string {
	if m.BytesPerSecond == 0 {
		return "-"
	}
	return units.FormatBytes(int64(math.Round(m.BytesPerSecond)))
}

// part formats a part of some bytes.
func part(some, all int64) string { return units.FormatBytes(some) + " of " + units.FormatBytes(all) }

// Ranges formats ascending numbers: 0-3, 7.
func Ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		text := strconv.Itoa(numbers[i])
		if last > i {
			text += "-" + strconv.Itoa(numbers[last])
		}
		parts, i = append(parts, text), last+1
	}
	return strings.Join(parts, ", ")
}

// table formats rows whose cells are terminated by tabs.
func table(head string, rows func(row func(string, ...any))) (lines []string) {
	var text bytes.Buffer
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(writer, head) // writing to memory does not fail
	rows(func(format string, args ...any) { _, _ = fmt.Fprintf(writer, format+"\n", args...) })
	_ = writer.Flush()
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}
