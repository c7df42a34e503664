package main

import (
	"math"
	"time"

	"docstore/bench/internal/histogram"
)

// A measure has the counters of an interval.
type measure struct {
	from, to int64
	hot      histogram.Histogram
	rest     histogram.Histogram
	counts   counts
	events   uint64 // since the start of the run
}

type counts struct {
	requests uint64 // begun
	refused  uint64 // refused by the frontend: all slots busy, no backend known
	denied   uint64 // attempts that a backend refused or broke
	retries  uint64
	failures uint64 // requests that ended without an answer after an attempt
	connects uint64 // connections made, or tried
	messages uint64 // leases, probes and their answers
}

func newMeasure(from, to int64) measure { return measure{from: from, to: to} }

func (m *measure) within(now int64) bool { return now >= m.from }

// count adds to a counter within the measured time.
func (s *simulation) count(counter *uint64, n uint64) {
	if s.measure.within(s.now) {
		*counter += n
	}
}

func (m *measure) done(now, took int64, hot bool) {
	switch {
	case !m.within(now):
	case hot:
		m.hot.Add(time.Duration(took))
	default:
		m.rest.Add(time.Duration(took))
	}
}

// A result has the figures of a run.
type result struct {
	config config
	counts counts
	events uint64
	memory memory
	spent  time.Duration

	mean                 time.Duration
	p50, p99, p999       time.Duration
	p99Hot, p99Rest      time.Duration
	meanUse, maxUse      float64 // of a backend's time
	idle, idealIdle      float64 // share of backends that had no request
	most, idealMost      float64 // requests of the busiest over the mean
	perFrontend, perBack [2]float64
	slowShare            float64 // requests of a slow backend relative to another
	loads                []float64
}

// result computes the figures. The ideal figures are those of a uniform random choice
// among all backends, for which the requests of a backend have a Poisson distribution.
func (s *simulation) result(spent time.Duration) result {
	m := &s.measure
	all := m.hot
	all.Merge(&m.rest)
	r := result{
		config: s.c, counts: m.counts, events: m.events, memory: s.memory, spent: spent,
		mean: all.Mean(),
		p50:  all.Quantile(0.5), p99: all.Quantile(0.99), p999: all.Quantile(0.999),
		p99Hot: m.hot.Quantile(0.99), p99Rest: m.rest.Quantile(0.99),
	}
	served, idle, most := 0.0, 0.0, 0.0
	var slow, slowCount, otherCount float64
	window := float64(m.to - m.from)
	n := float64(len(s.backends))
	for i := range s.backends {
		b := &s.backends[i]
		served += float64(b.served)
		most = max(most, float64(b.served))
		if b.served == 0 {
			idle++
		}
		use := float64(b.busy) / window
		r.meanUse += use / n
		r.maxUse = max(r.maxUse, use)
		r.perBack[0] += float64(b.sessions) / n
		r.perBack[1] = max(r.perBack[1], float64(b.sessions))
		if b.speed < 0.8 {
			slow += float64(b.served)
			slowCount++
		} else {
			otherCount++
		}
	}
	for i := range s.frontends {
		conns := float64(s.frontends[i].conns)
		r.perFrontend[0] += conns / float64(len(s.frontends))
		r.perFrontend[1] = max(r.perFrontend[1], conns)
	}
	mean := served / n
	r.idle, r.idealIdle = idle/n, math.Exp(-mean)
	if mean > 0 {
		r.most, r.idealMost = most/mean, poissonMax(mean, len(s.backends))/mean
	}
	if slowCount > 0 && otherCount > 0 {
		r.slowShare = slow / slowCount / ((served - slow) / otherCount)
	}
	if mean > 0 {
		r.loads = s.loads(mean)
	}
	return r
}

// loadPoints is the number of points of a picture's load curve.
const loadPoints = 200

// loads returns loadPoints quantiles of the backends' requests relative to the mean.
func (s *simulation) loads(mean float64) []float64 {
	most := uint32(0)
	for i := range s.backends {
		most = max(most, s.backends[i].served)
	}
	counts := make([]int, most+1)
	for i := range s.backends {
		counts[s.backends[i].served]++
	}
	points := make([]float64, 0, loadPoints+1)
	load, below := 0, 0
	for p := range loadPoints + 1 {
		rank := min(p*len(s.backends)/loadPoints, len(s.backends)-1)
		for below+counts[load] <= rank {
			below += counts[load]
			load++
		}
		points = append(points, float64(load)/mean)
	}
	return points
}

// poissonMax is the expected largest of n independent Poisson variables: the sum
// over m of the chance that one is above m.
func poissonMax(mean float64, n int) float64 {
	if mean == 0 {
		return 0
	}
	sum, below := 0.0, 0.0
	for m := 0.0; ; m++ {
		lg, _ := math.Lgamma(m + 1)
		at := math.Exp(m*math.Log(mean) - mean - lg)
		below += at
		sum -= math.Expm1(float64(n) * math.Log(min(below, 1)))
		// Do not compare below with 1, which it may not reach because of rounding.
		if m > mean && float64(n)*at < 1e-9 {
			return sum
		}
	}
}
