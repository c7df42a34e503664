package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A period is a change and the baseline after it.
type period struct {
	step            string
	promised        int // new connections, by the algorithm
	change, settled *window
}

// cost returns the processor time of the change minus that of the baseline.
func (p period) cost() time.Duration {
	always := float64(p.settled.cpu) / float64(p.settled.lasted)
	return p.change.cpu - time.Duration(always*float64(p.change.lasted))
}

// String returns a line of progress. Some requests may still be in flight.
func (p period) String() string {
	f := figuresOf([]period{p})
	return fmt.Sprintf("%s: %.0f new connections (%.0f), %.2f s, %.0f failed of %.0f, p99 %v, then %v",
		p.step, f["connections"], f["promised"], f["cpu s"], f["failed"], f["requests"], time.Duration(f["p99 ns"]), time.Duration(f["settled p99 ns"]))
}

// printed are the figures of the table.
var printed = []string{
	"connections", "promised", "cpu s", "failed", "worst failed", "requests", "p99 ns", "p999 ns",
	"settled failed", "settled p99 ns", "settled p999 ns", "fewest slots",
}

// figuresOf returns the costs of all changes. The failures of a kind are the figure "failed: KIND";
// "worst failed" are those of the worst step.
func figuresOf(all []period) map[string]float64 {
	f := map[string]float64{"failed": 0, "worst failed": 0, "settled failed": 0, "fewest slots": math.MaxInt32}
	var took, settled []time.Duration
	for _, p := range all {
		f["promised"] += float64(p.promised)
		f["connections"] += float64(p.change.dialled)
		f["cpu s"] += p.cost().Seconds()
		changeTook, failures, slots := p.change.results()
		took = append(took, changeTook...)
		failed := 0
		for kind, n := range failures {
			f["failed: "+kind] += float64(n)
			failed += n
		}
		f["failed"] += float64(failed)
		f["worst failed"] = max(f["worst failed"], float64(failed))
		f["fewest slots"] = min(f["fewest slots"], float64(slots))
		settledTook, failures, _ := p.settled.results()
		settled = append(settled, settledTook...)
		for _, n := range failures {
			f["settled failed"] += float64(n)
		}
	}
	f["requests"] = float64(len(took))
	f["p99 ns"], f["p999 ns"] = percentile(took, 0.99), percentile(took, 0.999)
	f["settled p99 ns"], f["settled p999 ns"] = percentile(settled, 0.99), percentile(settled, 0.999)
	return f
}

// percentile returns a percentile of the latencies.
func percentile(took []time.Duration, share float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[min(int(share*float64(len(took))), len(took)-1)])
}
