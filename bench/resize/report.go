package main

import (
	"math"
	"time"

	"docstore/bench/internal/results"
)

// A period is a change and the baseline after it.
type period struct {
	change, settled *window
}

// cost returns the processor time of the change minus that of the baseline.
func (p period) cost() time.Duration {
	always := float64(p.settled.cpu) / float64(p.settled.lasted)
	return p.change.cpu - time.Duration(always*float64(p.change.lasted))
}

// printed are the figures of the table.
var printed = []string{
	"connections", "cpu s", "failed", "worst failed", "requests", "p99 ns", "p999 ns",
	"settled failed", "settled p99 ns", "settled p999 ns", "fewest slots",
}

// figuresOf returns the costs of all changes. The failures of a kind are the figure "failed: KIND";
// "worst failed" are those of the worst step.
func figuresOf(all []period) map[string]float64 {
	f := map[string]float64{"failed": 0, "worst failed": 0, "settled failed": 0, "fewest slots": math.MaxInt32}
	var took, settled []time.Duration
	for _, p := range all {
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
	results.AddPercentiles(f, "", took)
	results.AddPercentiles(f, "settled ", settled)
	return f
}
