package boxcar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

// A report is the result of a bench; --json writes it as JSON.
type report struct {
	What     string           `json:"what"`
	Servers  int              `json:"servers"`
	Slots    int              `json:"slots"` // held at the end
	Callers  int              `json:"callers"`
	Rate     float64          `json:"rate,omitempty"` // requested; none for a closed loop
	Elapsed  time.Duration    `json:"elapsed_ns"`
	Calls    int64            `json:"calls"`
	PerSec   float64          `json:"calls_per_second"`
	NotFound int64            `json:"not_found"`
	Failed   int64            `json:"failed"`
	Errors   map[string]int64 `json:"errors,omitempty"`
	Busy     int64            `json:"due_while_all_callers_were_busy"`
	Unsent   int64            `json:"never_sent"` // because the callers could not keep up
	Latency  times            `json:"latency_ns"` // from the due time
	Service  times            `json:"service_ns"` // from sending
	Late     times            `json:"late_ns"`    // from the due time to sending
}

// times are the percentiles of a histogram.
type times struct {
	Mean time.Duration `json:"mean"`
	P50  time.Duration `json:"p50"`
	P90  time.Duration `json:"p90"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
	Max  time.Duration `json:"max"`
}

func timesOf(h *hdrhistogram.Histogram) times {
	at := func(percent float64) time.Duration { return time.Duration(h.ValueAtPercentile(percent)) }
	return times{time.Duration(h.Mean()), at(50), at(90), at(99), at(99.9), time.Duration(h.Max())}
}

// report summarizes a tally.
func (l load) report(t *tally, elapsed time.Duration, unsent int64) report {
	calls := t.latency.TotalCount()
	return report{
		Callers: l.callers, Rate: l.rate, Elapsed: elapsed, Calls: calls, PerSec: float64(calls) / elapsed.Seconds(),
		NotFound: t.notFound, Failed: t.failed, Errors: t.errors, Busy: t.busy, Unsent: unsent,
		Latency: timesOf(t.latency), Service: timesOf(t.service), Late: timesOf(t.late),
	}
}

func (r report) print(out *cli.Output, asJSON bool) {
	if asJSON {
		text, err := json.Marshal(r)
		if err != nil {
			panic(err) // numbers and strings always encode
		}
		out.Write(append(text, '\n'))
		return
	}
	loop := "closed loop"
	if r.Rate > 0 {
		loop = fmt.Sprintf("%.6g calls/s due", r.Rate)
	}
	out.Printf("%s: %s, %s, %s, servers: %d\n", r.What, loop, units.FormatCountOf(int64(r.Callers), "caller", "callers"),
		units.FormatCountOf(int64(r.Slots), "slot", "slots"), r.Servers)
	out.Printf("%s in %s, %s/s; %s failed", units.FormatCountOf(r.Calls, "call", "calls"), r.Elapsed.Round(time.Millisecond),
		units.FormatCount(int64(r.PerSec)), units.FormatCount(r.Failed))
	if r.NotFound > 0 {
		out.Printf("; %s not found", units.FormatCount(r.NotFound))
	}
	out.Printf("\n\n")
	table := tabwriter.NewWriter(writerOf{out}, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows := []string{"\tmean\tp50\tp90\tp99\tp99.9\tmax\t", r.Latency.row("latency")}
	if r.Rate > 0 {
		rows = append(rows, r.Service.row("service"), r.Late.row("late"))
	}
	_, _ = table.Write([]byte(strings.Join(rows, "\n") + "\n")) // out keeps the error
	_ = table.Flush()
	if r.Busy > 0 && r.Rate > 0 {
		out.Printf("\n%s due while all callers were busy\n", units.FormatCountOf(r.Busy, "call was", "calls were"))
	}
	if r.Unsent > 0 {
		out.Printf("\n%s due but never sent: the callers could not keep up\n", units.FormatCountOf(r.Unsent, "call was", "calls were"))
	}
	if len(r.Errors) > 0 {
		out.Printf("\nfailures:\n")
	}
	most := func(a, b string) int { return cmp.Or(cmp.Compare(r.Errors[b], r.Errors[a]), cmp.Compare(a, b)) }
	for _, kind := range slices.SortedFunc(maps.Keys(r.Errors), most) {
		out.Printf("  %s  %s\n", units.FormatCount(r.Errors[kind]), kind)
	}
}

// row formats a row of the table.
func (t times) row(name string) string {
	row := name
	for _, d := range []time.Duration{t.Mean, t.P50, t.P90, t.P99, t.P999, t.Max} {
		row += "\t" + roundTime(d).String()
	}
	return row + "\t"
}

// roundTime rounds to about three digits.
func roundTime(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
