package main

import (
	"math"
	"slices"
	"time"
)

// A measure has the counters of an interval.
type measure struct {
	from, to int64
	hot      times
	rest     times
	counts   counts
	short    int64  // longest time in which a frontend lacked slots, nanoseconds
	seeking  int64  // the same, until it then had the lowest free ones
	events   uint64 // since the start of the run
}

type counts struct {
	requests    uint64 // begun
	attempts    uint64 // sent to a backend
	left        uint64 // of these, to a backend of another zone
	refused     uint64 // refused by the frontend: all slots busy, no backend known
	denied      uint64 // attempts that a backend refused or broke
	rateLimited uint64 // of these, refused for lack of a token: status 429
	retries     uint64
	failures    uint64 // requests that ended without an answer after an attempt
	connects    uint64 // connections made, or tried
	messages    uint64 // leases, probes and their answers
	gossip      uint64 // messages of backends, and relayed ones
	expired     uint64 // of the failures, those at the deadline
	hedges      uint64
	borrowings  uint64 // changes of the borrowed servers
	disconnects uint64 // slots given back, or servers replaced
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
		m.hot = append(m.hot, took)
	default:
		m.rest = append(m.rest, took)
	}
}

// times are durations in nanoseconds. All are stored, so that quantiles are exact.
type times []int64

// quantile returns a quantile of sorted times, 0 if there are none.
func (t times) quantile(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return time.Duration(t[max(0, int(math.Ceil(share*float64(len(t))))-1)])
}

func (t times) mean() time.Duration {
	sum := 0.0
	for _, x := range t {
		sum += float64(x)
	}
	return time.Duration(sum / float64(max(len(t), 1)))
}

// lost returns the number of requests without an answer.
func (c *counts) lost() uint64 { return c.refused + c.failures }

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
	perFrontend, perBack [2]float64
	age                  int64            // median age of the rows of knotty's tables, nanoseconds
	fresh                float64          // share of the rows of the last two intervals
	short, seeking       time.Duration    // longest time in which a frontend lacked slots, and until it then had the lowest
	announced            [2]time.Duration // until the median backend and the last one know an announcement
}

// result computes the figures. The ideal share of idle backends is that of a uniform
// random choice, with which the requests of a backend have a Poisson distribution.
func (s *simulation) result(spent time.Duration) result {
	m := &s.measure
	slices.Sort(m.hot)
	slices.Sort(m.rest)
	all := slices.Concat(m.hot, m.rest)
	slices.Sort(all)
	r := result{
		config: s.c, counts: m.counts, events: m.events, memory: s.memory, spent: spent,
		mean: all.mean(),
		p50:  all.quantile(0.5), p99: all.quantile(0.99), p999: all.quantile(0.999),
		p99Hot: m.hot.quantile(0.99), p99Rest: m.rest.quantile(0.99),
	}
	s.endWatch()
	r.short, r.seeking = time.Duration(m.short), time.Duration(m.seeking)
	r.age, r.fresh = s.freshness()
	heard := s.announce()
	slices.Sort(heard)
	r.announced = [2]time.Duration{heard.quantile(0.5), heard.quantile(1)}
	served, idle := 0.0, 0.0
	window := float64(m.to - m.from)
	n := float64(len(s.backends))
	for i := range s.backends {
		b := &s.backends[i]
		served += float64(b.served)
		if b.served == 0 {
			idle++
		}
		use := float64(b.busy) / window
		r.meanUse += use / n
		r.maxUse = max(r.maxUse, use)
		r.perBack[0] += float64(b.sessions) / n
		r.perBack[1] = max(r.perBack[1], float64(b.sessions))
	}
	for i := range s.frontends {
		conns := float64(s.frontends[i].conns)
		r.perFrontend[0] += conns / float64(len(s.frontends))
		r.perFrontend[1] = max(r.perFrontend[1], conns)
	}
	r.idle, r.idealIdle = idle/n, math.Exp(-served/n)
	return r
}
