package boxcar

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"docstore/docservice/server/livepage"
	"docstore/internal/units"
)

// frame returns the lines of top: all of one daemon, or one line for each of several.
func frame(readings []reading, now time.Time) []string {
	if len(readings) == 1 && readings[0].now != nil {
		return readings[0].frame(now)
	}
	f := framed{}
	f.line("%s, %s", units.FormatCountOf(int64(len(readings)), "daemon", "daemons"), now.Format(time.TimeOnly))
	f.line("")
	f.table("daemon\tstate\trequests/s\tp99\tin flight\tslots\terrors/s\trefused/s\tbehind\tvisible after\tp99 of 5 min\tfrom source\t", func(row func(string, ...any)) {
		for _, r := range readings {
			r.row(row)
		}
	})
	return f.lines
}

// row writes the line of a daemon.
func (r *reading) row(row func(string, ...any)) {
	switch {
	case r.err != nil:
		row("%s\tdoes not answer: %v\t", r.address, r.err)
		return
	case r.now == nil:
		row("%s\t-\t", r.address)
		return
	}
	s := r.now
	p99, behind, visible, fresh, fromSource := 0.0, int64(0), 0.0, 0.0, 0.0
	for _, l := range s.Latencies {
		p99 = max(p99, l.P99)
	}
	for _, c := range s.Collections {
		behind, visible = max(behind, c.LagBytes), max(visible, c.VisibleAfter)
		fresh, fromSource = max(fresh, c.Freshness.P99), max(fromSource, c.Canaries.P99)
	}
	row("%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t", r.address, state(s),
		r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Requests }), units.FormatSeconds(p99), s.Boxcar.InFlight, len(s.Boxcar.Slots)+s.Boxcar.More,
		r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Errors }), r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Refused }),
		units.FormatBytes(behind), visibleAfter(visible), visibleAfter(fresh), visibleAfter(fromSource))
}

// visibleAfter formats a livepage.Collection's VisibleAfter or the percentile of its Freshness.
func visibleAfter(seconds float64) string {
	if seconds == 0 {
		return "-" // not measured yet
	}
	return units.FormatSeconds(seconds)
}

// state describes the state of a daemon in one or two words.
func state(s *livepage.Status) string {
	faults := 0
	for _, c := range s.Collections {
		faults += len(c.Faults) + c.MoreFaults
	}
	switch {
	case s.Ending:
		return "ending"
	case !s.Ready:
		return cmp.Or(unready(s), "not ready")
	case s.Boxcar.Draining:
		return "draining"
	case faults > 0:
		return fmt.Sprintf("ready, %d faults", faults)
	case pinned(s):
		return "ready, pinned"
	}
	return "ready"
}

// unready returns the state of the first collection that is not ready; empty: all are.
func unready(s *livepage.Status) string {
	for _, c := range s.Columns {
		if !c.Ready {
			return string(c.State)
		}
	}
	for i := range s.Collections {
		if !s.Collections[i].Ready {
			return string(s.Collections[i].State)
		}
	}
	return ""
}

// reasons writes why collections are not ready, a line for each.
func reasons(f *framed, s *livepage.Status) {
	for _, c := range s.Columns {
		if !c.Ready {
			f.line("%s, column %s: %s", c.Collection, c.Column, c.Reason)
		}
	}
	for i := range s.Collections {
		if c := &s.Collections[i]; !c.Ready {
			f.line("%s: %s", c.Name, c.Reason)
		}
	}
}

// pinned reports whether a pin holds a collection.
func pinned(s *livepage.Status) bool {
	return slices.ContainsFunc(s.Collections, func(c livepage.Collection) bool { return c.Manifest != nil && c.Manifest.PinnedAt != nil })
}

// manifests writes a line for each collection in an object store.
func manifests(f *framed, s *livepage.Status) {
	for _, c := range s.Collections {
		m := c.Manifest
		if m == nil {
			continue
		}
		line := fmt.Sprintf("%s: manifest %d is served, %d is announced", c.Name, m.Served, m.Announced)
		if m.PinnedAt != nil {
			line += fmt.Sprintf(", %d is pinned by %s", m.Target, cmp.Or(m.PinnedBy, "an unknown user"))
			if m.PinReason != "" {
				line += " (" + m.PinReason + ")"
			}
		}
		if m.FetchBytes > 0 {
			line += fmt.Sprintf("; fetched %s of %s for %d", units.FormatBytes(m.FetchedBytes), units.FormatBytes(m.FetchBytes), m.Target)
		}
		f.line("%s", line)
		if m.Error != "" {
			f.line("%s: %s", c.Name, m.Error)
		}
	}
}

// residencies writes a line for each index and each queue that the daemon measures.
func residencies(f *framed, s *livepage.Status) {
	for i := range s.Collections {
		c := &s.Collections[i]
		line := func(part string, mapped *livepage.Mapped, cold *livepage.ColdReads) {
			if mapped == nil || cold == nil {
				return
			}
			f.line("%s, %s: %.1f %% of %s in memory; cold reads: %s/s, p50 %s, p99 %s", c.Name, part, 100*mapped.ResidentRatio, units.FormatBytes(mapped.Bytes),
				units.FormatCount(int64(math.Round(cold.PerSecond))), units.FormatSeconds(cold.P50), units.FormatSeconds(cold.P99))
		}
		line("index", c.Index.Mapped, c.Index.ColdReads)
		line("queue", c.Queue.Mapped, c.Queue.ColdReads)
	}
}

// frame returns all lines of a daemon.
func (r *reading) frame(now time.Time) []string {
	s, f := r.now, framed{}
	b := &s.Boxcar
	f.line("docserviced %s, %s, up %s, %s", s.Host, state(s), units.FormatDuration(s.Time.Sub(s.Started)), now.Format(time.TimeOnly))
	f.line("boxcar %s: %s requests/s, %s errors/s, %s refused/s, %d in flight; %d slots, lowest free %d, %s leases/s; %d connections", b.Address,
		r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Requests }), r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Errors }),
		r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Refused }), b.InFlight, len(b.Slots)+b.More, b.LowestFree,
		r.rate(func(s *livepage.Status) uint64 { return s.Boxcar.Leases }), b.Connections)
	m := &s.Memory
	f.line("memory: memtables %s, filters %s, merges %s, of %s; Go holds %s", units.FormatBytes(m.MemtableBytes), units.FormatBytes(m.FilterBytes),
		units.FormatBytes(m.MergeBytes), units.FormatBytes(m.BudgetBytes), units.FormatBytes(m.GoHeapBytes))
	f.line("")
	f.table("collection\tdocuments\tfound/s\tnot found/s\tunavailable/s\tbehind\tvisible after\tp99 of 5 min\tfrom source\tfaults\t", func(row func(string, ...any)) {
		for i := range s.Collections {
			c := &s.Collections[i]
			gets := func(of func(livepage.Gets) uint64) string {
				return r.rate(func(s *livepage.Status) uint64 { return of(collectionNamed(s, c.Name).Gets) })
			}
			row("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t", c.Name, units.FormatCount(c.Queue.Documents),
				gets(func(g livepage.Gets) uint64 { return g.Found }), gets(func(g livepage.Gets) uint64 { return g.NotFound }),
				gets(func(g livepage.Gets) uint64 { return g.Unavailable }), units.FormatBytes(c.LagBytes), visibleAfter(c.VisibleAfter), visibleAfter(c.Freshness.P99), visibleAfter(c.Canaries.P99), len(c.Faults)+c.MoreFaults)
		}
	})
	reasons(&f, s)
	residencies(&f, s)
	manifests(&f, s)
	f.line("")
	f.table("listener\tmethod\tper second\tp50\tp99\t", func(row func(string, ...any)) {
		for _, l := range s.Latencies {
			if l.Total > 0 {
				row("%s\t%s\t%s\t%s\t%s\t", l.Listener, l.Method, units.FormatCount(int64(math.Round(l.PerSecond))), units.FormatSeconds(l.P50), units.FormatSeconds(l.P99))
			}
		}
	})
	f.line("")
	r.slots(&f)
	return f.lines
}

// slots lists the granted slots.
func (r *reading) slots(f *framed) {
	before := map[int]livepage.Slot{}
	if r.before != nil {
		for _, slot := range r.before.Boxcar.Slots {
			before[slot.Number] = slot
		}
	}
	slots := slices.SortedFunc(slices.Values(r.now.Boxcar.Slots), func(a, b livepage.Slot) int { return cmp.Compare(a.Number, b.Number) })
	f.table("slot\tclient\taddress\tage\trequests\tper second\terrors\tstate\t", func(row func(string, ...any)) {
		for _, s := range slots {
			use, client, perSecond := "free", s.Client, "-"
			if s.Busy {
				use = "busy"
			}
			if s.Identity != "" {
				client += " as " + s.Identity
			}
			// Another lease of the same number has its own counters.
			if was, ok := before[s.Number]; ok && was.Address == s.Address && was.Age <= s.Age && was.Requests <= s.Requests {
				perSecond = r.perSecond(s.Requests - was.Requests)
			}
			row("%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", s.Number, client, s.Address, units.FormatSeconds(s.Age),
				units.FormatCount(int64(s.Requests)), perSecond, units.FormatCount(int64(s.Errors)), use)
		}
	})
	if more := r.now.Boxcar.More; more > 0 {
		f.line("and %s more", units.FormatCount(int64(more)))
	}
}

// rate returns the rate of a counter since the previous reading, "-" if there is none.
func (r *reading) rate(count func(*livepage.Status) uint64) string {
	if r.before == nil {
		return "-"
	}
	return r.perSecond(count(r.now) - min(count(r.before), count(r.now)))
}

// perSecond converts an increase since the previous reading to a rate.
func (r *reading) perSecond(n uint64) string {
	seconds := r.now.Time.Sub(r.before.Time).Seconds()
	if seconds <= 0 { // its clock was set back
		return "-"
	}
	return units.FormatCount(int64(math.Round(float64(n) / seconds)))
}

// collectionNamed returns the collection with a name, or an empty one.
func collectionNamed(s *livepage.Status, name string) livepage.Collection {
	for _, c := range s.Collections {
		if c.Name == name {
			return c
		}
	}
	return livepage.Collection{}
}

// framed collects lines.
type framed struct{ lines []string }

func (f *framed) line(format string, args ...any) {
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

// table adds a table; cells are terminated by tabs.
func (f *framed) table(head string, rows func(row func(string, ...any))) {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, head) // writing to memory does not fail
	rows(func(format string, args ...any) { _, _ = fmt.Fprintf(table, format+"\n", args...) })
	_ = table.Flush()
	for line := range strings.Lines(text.String()) {
		f.lines = append(f.lines, strings.TrimRight(line, " \n"))
	}
}

// fit cuts lines to the size of the terminal.
func fit(lines []string, width, height int) []string {
	lines = slices.Clone(lines[:min(len(lines), max(height, 0))])
	for i, line := range lines {
		if utf8.RuneCountInString(line) > width {
			lines[i] = string([]rune(line)[:max(width, 0)])
		}
	}
	return lines
}
