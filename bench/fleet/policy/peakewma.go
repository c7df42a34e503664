package policy

import (
	"math"
	"math/rand/v2"
)

const (
	// peakDecay is the time constant of the decay of a peak, in nanoseconds.
	peakDecay = 10e9
	// peakUnknown is the time of a server that has a request and has answered none, in
	// nanoseconds: larger than any other.
	peakUnknown = 1e12
)

// peakEWMA draws two servers and uses the one with the lower expected latency: the average time, which
// rises at once with a slow answer and falls slowly, times the number of its requests. It is Finagle's
// P2C + Peak EWMA:
// https://github.com/twitter/finagle/blob/develop/finagle-core/src/main/scala/com/twitter/finagle/loadbalancer/PeakEwma.scala.
type peakEWMA struct {
	set
	times []peakTime // by entry
}

type peakTime struct {
	average float64 // nanoseconds
	at      int64   // of the last answer
	use     uint32  // generation of the entry
}

// Pick implements Policy.
func (p *peakEWMA) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	a, b, ok := p.two(tried, rng)
	if !ok {
		return Choice{}, false
	}
	if p.cost(now, b) < p.cost(now, a) {
		a = b
	}
	return p.take(a)
}

func (p *peakEWMA) cost(now int64, entry int32) float64 {
	m, t := &p.members[entry], p.time(entry)
	average := t.average * math.Exp(-float64(now-t.at)/peakDecay)
	if t.at == 0 && m.inFlight > 0 {
		average = peakUnknown
	}
	return average * float64(m.inFlight+1)
}

// time returns the state of the server that has the entry.
func (p *peakEWMA) time(entry int32) *peakTime {
	for int(entry) >= len(p.times) {
		p.times = append(p.times, peakTime{})
	}
	t := &p.times[entry]
	if use := p.members[entry].use; t.use != use {
		*t = peakTime{use: use}
	}
	return t
}

// Done implements Policy.
func (p *peakEWMA) Done(now int64, c Choice, r Result, rng *rand.PCG) {
	if !p.done(now, c, r, rng) || r.Outcome != Success {
		return
	}
	t, took := p.time(c.Entry), float64(r.Took)
	if took > t.average {
		t.average = took
	} else {
		weight := math.Exp(-float64(now-t.at) / peakDecay)
		t.average = t.average*weight + took*(1-weight)
	}
	t.at = max(now, 1)
}
