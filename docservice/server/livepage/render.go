package livepage

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"docstore/internal/units"
)

// sections are the parts of the page that are updated: names of templates and ids of
// elements.
var sections = []string{"state", "collections", "figures", "faults", "memory", "queues", "indexes", "filters", "boxcar", "log", "settings"}

// shownSegments and shownSlots limit the lists on the page; the status has all entries.
const (
	shownSegments = 60
	shownSlots    = 200
)

var functions = template.FuncMap{
	"bytes":    formatBytes,
	"rate":     func(v float64) string { return formatBytes(int64(v)) + "/s" },
	"count":    formatCount,
	"duration": units.FormatDuration,
	"seconds":  units.FormatSeconds,
	"percent":  func(part, whole any) string { return formatPercent(number(part), number(whole)) },
	"when":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"ago":      func(now, then time.Time) string { return units.FormatDuration(now.Sub(then)) },
	"per":      func(v float64) string { return units.FormatCount(int64(math.Round(v))) },
	"fixed":    func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) },
	"memory":   memoryBar,
	"figures":  figures,
	"state":    stateOf,
	"reason":   func(name string) string { return strings.ReplaceAll(name, "_", " ") },
	"tables":   tableBars,
	"segments": segmentRows,
	"slots":    shownBoard,
	"clients":  clients,
	"heat":     func(v view, i int) heatMap { return v.Heat[i] },
	"x":        func(i int) int { return i * cellWidth },
	"mul":      func(a, b float64) float64 { return a * b },
	"add":      func(a, b int) int { return a + b },
	"shownid":  shownID,
	"indented": indented,
	"opacity":  func(heat float64) float64 { return 0.15 + 0.85*heat },
}

// cellWidth is the distance between the cells of a heat map.
const cellWidth = 10

// number converts the types used in templates.
func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		return v
	}
	panic(fmt.Sprintf("livepage: %T is not a number", v))
}

func formatBytes(v any) string { return units.FormatBytes(int64(number(v))) }
func formatCount(v any) string { return units.FormatCount(int64(number(v))) }

func formatPercent(part, whole float64) string {
	if whole == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*part/whole, 'f', 1, 64) + " %"
}

func perSecond(v float64) string { return units.FormatCount(int64(math.Round(v))) + "/s" }

// figures returns the graphs at the top of the page that have a value other than 0.
func figures(v view) []template.HTML {
	charts := []template.HTML{
		chart("Requests", perSecond, fromZero, series{"", requestsPerSecond(v.Samples)}),
		chart("Latency, by factors", units.FormatSeconds, byRatio, series{"p99", percentile(v.Samples, 0.99)}, series{"p50", percentile(v.Samples, 0.5)}),
		chart("Slots", perSecond, fromZero, series{"leased", leasesPerSecond(v.Samples)}, series{"refused", refusedPerSecond(v.Samples)}),
	}
	for _, c := range v.Collections {
		charts = append(charts,
			chart("Documents of "+c.Name, perSecond, fromZero, series{"", documentsPerSecond(v.Samples, c.Name)}),
			chart("Visible after, "+c.Name, units.FormatSeconds, fromZero, series{"", visibleAfter(v.Samples, c.Name)}),
			chart("Not indexed yet, "+c.Name, func(b float64) string { return units.FormatBytes(int64(b)) }, fromZero, series{"", lagBytes(v.Samples, c.Name)}))
	}
	return slices.DeleteFunc(charts, func(c template.HTML) bool { return c == "" })
}

// collectionState is the state of a collection in words, with the class of their color.
type collectionState struct{ Words, Class string }

func stateOf(c Collection) collectionState {
	switch {
	case !c.Ready && c.Reason == "":
		return collectionState{"not ready", "warn-text"}
	case !c.Ready:
		return collectionState{"not ready: " + c.Reason, "warn-text"}
	case c.Index.Problem != "":
		return collectionState{"served; the index has failed", "bad-text"}
	case len(c.Faults) > 0:
		return collectionState{"served; faults: " + units.FormatCount(int64(len(c.Faults)+c.MoreFaults)), "bad-text"}
	case c.LagBytes > 0:
		return collectionState{"served; " + units.FormatBytes(c.LagBytes) + " are not indexed yet", ""}
	}
	return collectionState{"served and up to date", ""}
}

// memoryBar shows the use of the memory budget.
func memoryBar(m Memory) []barPart {
	return stack(m.BudgetBytes,
		bar{"memtables", "m1", m.MemtableBytes},
		bar{"Bloom filters", "m2", m.FilterBytes},
		bar{"merges", "m3", m.MergeBytes})
}

// tableBar is a table of an index with the width of its bar, in per mille of the largest.
type tableBar struct {
	Table
	Width float64
}

func tableBars(tables []Table) []tableBar {
	var most uint64 = 1
	for _, t := range tables {
		most = max(most, t.Bytes)
	}
	bars := make([]tableBar, len(tables))
	for i, t := range tables {
		bars[i] = tableBar{t, max(3, 1000*float64(t.Bytes)/float64(most))}
	}
	return bars
}

// segmentRow is a segment, or several older ones combined.
type segmentRow struct {
	Segment
	Name  string
	Older int     // further segments in this row
	Live  float64 // width of the live part, in per mille of the largest row
	Dead  float64
}

// segmentRows lists the newest segments first, with the remaining ones combined in the last
// row.
func segmentRows(segments []Segment) []segmentRow {
	rows := make([]segmentRow, 0, min(len(segments), shownSegments+1))
	for i, s := range slices.Backward(segments) {
		if len(rows) <= shownSegments {
			rows = append(rows, segmentRow{Segment: s, Name: segmentName(s)})
			continue
		}
		sum := &rows[shownSegments]
		sum.Older++
		sum.First = s.First
		sum.Bytes += s.Bytes
		sum.Documents += s.Documents
		sum.Deletes += s.Deletes
		sum.StoredBytes += s.StoredBytes
		sum.RawBytes += s.RawBytes
		sum.LiveBytes += s.LiveBytes
		sum.Counted = sum.Counted && s.Counted
		sum.Name = fmt.Sprintf("%d older", i+sum.Older+1)
	}
	var most int64 = 1
	for _, r := range rows {
		most = max(most, r.StoredBytes)
	}
	for i := range rows {
		live := rows[i].StoredBytes
		if rows[i].Counted {
			live = min(live, rows[i].LiveBytes)
		}
		rows[i].Live = 1000 * float64(live) / float64(most)
		rows[i].Dead = 1000 * float64(rows[i].StoredBytes-live) / float64(most)
	}
	return rows
}

func segmentName(s Segment) string {
	name := strconv.FormatUint(uint64(s.First), 10)
	if s.Last > s.First {
		name += "-" + strconv.FormatUint(uint64(s.Last), 10)
	}
	if s.Generation > 0 {
		name += "." + strconv.FormatUint(uint64(s.Generation), 10)
	}
	return name
}

// board holds the slots to show.
type board struct {
	Slots []Slot
	More  int
}

// shownBoard selects the slots of a client, or all, up to the limit of the page.
func shownBoard(b Boxcar, client string) board {
	shown := board{More: b.More}
	for _, s := range b.Slots {
		switch {
		case client != "" && s.Client != client:
		case len(shown.Slots) == shownSlots:
			shown.More++
		default:
			shown.Slots = append(shown.Slots, s)
		}
	}
	return shown
}

// client is a client that holds slots.
type client struct {
	Name        string
	Slots, Busy int
	Requests    uint64
	Errors      uint64
	Ladder      string // the numbers of its slots
}

// shownNumbers limits the slot numbers listed for a client.
const shownNumbers = 24

// clients returns the clients that hold slots, those with most slots first.
func clients(b Boxcar) []client {
	at := map[string]int{}
	var found []client
	numbers := map[string][]string{}
	for _, s := range b.Slots {
		i, known := at[s.Client]
		if !known {
			i = len(found)
			at[s.Client], found = i, append(found, client{Name: s.Client})
		}
		c := &found[i]
		c.Slots++
		c.Requests += s.Requests
		c.Errors += s.Errors
		if s.Busy {
			c.Busy++
		}
		if c.Slots <= shownNumbers {
			numbers[s.Client] = append(numbers[s.Client], strconv.Itoa(s.Number))
		}
	}
	for i := range found {
		c := &found[i]
		c.Ladder = strings.Join(numbers[c.Name], " ")
		if c.Slots > shownNumbers {
			c.Ladder += " …"
		}
	}
	slices.SortStableFunc(found, func(a, b client) int { return b.Slots - a.Slots })
	return found[:min(len(found), shownSlots)]
}
