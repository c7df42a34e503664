package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	r := newReport([]period{p})
	return fmt.Sprintf("%s: %d new connections (%d), %.2f s, %d failed of %d, p99 %s, then %s",
		p.step, r.dialled, r.promised, r.cost.Seconds(), r.failed, len(r.took), round(percentile(r.took, 0.99)), round(percentile(r.settled, 0.99)))
}

// A report has the costs of all changes.
type report struct {
	promised      int // as a period's
	dialled       int64
	cost          time.Duration
	took, settled []time.Duration // of requests
	failures      map[string]int
	failed        int
	failedSettled int
	slots         int
	worst         int // failures of the worst step
}

func newReport(all []period) report {
	r := report{failures: map[string]int{}, slots: math.MaxInt}
	for _, p := range all {
		r.promised += p.promised
		r.cost += p.cost()
		r.dialled += p.change.dialled
		failed := 0
		p.change.mu.Lock()
		r.took = append(r.took, p.change.took...)
		r.slots = min(r.slots, p.change.slots)
		for kind, n := range p.change.failures {
			r.failures[kind] += n
			failed += n
		}
		p.change.mu.Unlock()
		r.failed += failed
		r.worst = max(r.worst, failed)
		p.settled.mu.Lock()
		r.settled = append(r.settled, p.settled.took...)
		for _, n := range p.settled.failures {
			r.failedSettled += n
		}
		p.settled.mu.Unlock()
	}
	return r
}

const header = `| | new connections, by the algorithm | processor time of the changes | failed requests, of which in the worst step | p99 | p99.9 | settled: failed, p99, p99.9 | fewest slots of a frontend |
|---|---|---|---|---|---|---|---|
`

// row returns the table row of all rounds of a trial.
func row(name string, rounds []report) string {
	seconds := func(r report) float64 { return r.cost.Seconds() }
	late := func(share float64) func(report) float64 {
		return func(r report) float64 { return milliseconds(percentile(r.took, share)) }
	}
	settled := func(share float64) func(report) float64 {
		return func(r report) float64 { return milliseconds(percentile(r.settled, share)) }
	}
	failedSettled, slots := 0, math.MaxInt
	for _, r := range rounds {
		failedSettled += r.failedSettled
		slots = min(slots, r.slots)
	}
	return fmt.Sprintf("| %s | %s, %d | %s s | %s | %s ms | %s ms | %d, %s, %s ms | %d |\n", name,
		spread(rounds, 0, func(r report) float64 { return float64(r.dialled) }), rounds[0].promised, spread(rounds, 1, seconds), failures(rounds),
		spread(rounds, 0, late(0.99)), spread(rounds, 0, late(0.999)),
		failedSettled, spread(rounds, 0, settled(0.99)), spread(rounds, 0, settled(0.999)), slots)
}

// spread returns the median of a figure over the rounds, with minimum and maximum if there
// are several.
func spread(rounds []report, digits int, figure func(report) float64) string {
	var all []float64
	for _, r := range rounds {
		all = append(all, figure(r))
	}
	slices.Sort(all)
	median := fmt.Sprintf("%.*f", digits, all[len(all)/2])
	if len(all) == 1 {
		return median
	}
	return fmt.Sprintf("%s (%.*f to %.*f)", median, digits, all[0], digits, all[len(all)-1])
}

// failures sums the failures of all rounds.
func failures(rounds []report) string {
	failed, requests, worst := 0, 0, 0
	byKind := map[string]int{}
	for _, r := range rounds {
		failed, requests, worst = failed+r.failed, requests+len(r.took), max(worst, r.worst)
		for kind, n := range r.failures {
			byKind[kind] += n
		}
	}
	if failed == 0 {
		return fmt.Sprintf("0 of %d", requests)
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", byKind[kind], kind))
	}
	return fmt.Sprintf("%d of %d (%.2g %%), %d; %s", failed, requests, 100*float64(failed)/float64(requests), worst, strings.Join(kinds, ", "))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
