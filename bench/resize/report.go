package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// A period is a change and the quiet time after it.
type period struct {
	step            string
	promised        int // new connections, by the algorithm
	change, settled *window
}

// cost is the processor time that the change took beyond what the same time takes
// when all is settled.
func (p period) cost() time.Duration {
	always := float64(p.settled.cpu) / float64(p.settled.lasted)
	return p.change.cpu - time.Duration(always*float64(p.change.lasted))
}

// String is for people who wait; requests of the period may yet be under way.
func (p period) String() string {
	r := newReport([]period{p})
	return fmt.Sprintf("%s: %d new connections (%d), %.2f s, %d failed of %d, p99 %s, then %s",
		p.step, r.dialled, r.promised, r.cost.Seconds(), r.failed, len(r.took), round(percentile(r.took, 0.99)), round(percentile(r.settled, 0.99)))
}

// A report is what all changes have cost.
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

const header = `| | new connections (by the algorithm) | processor time of the changes | failed requests, of which in the worst step | p99, p99.9 | settled: failed, p99, p99.9 | fewest slots of a frontend |
|---|---|---|---|---|---|---|
`

func (r report) row(name string) string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.failures)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", r.failures[kind], kind))
	}
	failures := "0"
	if r.failed > 0 {
		failures = fmt.Sprintf("%d of %d (%.2g %%), %d; %s", r.failed, len(r.took), 100*float64(r.failed)/float64(len(r.took)), r.worst, strings.Join(kinds, ", "))
	}
	return fmt.Sprintf("| %s | %d (%d) | %.2f s | %s | %s, %s | %d, %s, %s | %d |\n", name, r.dialled, r.promised, r.cost.Seconds(), failures,
		round(percentile(r.took, 0.99)), round(percentile(r.took, 0.999)),
		r.failedSettled, round(percentile(r.settled, 0.99)), round(percentile(r.settled, 0.999)), r.slots)
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
