package readiness

import "time"

const (
	// A Meter computes the rate of the last meterWindow, once it has minMeterTime.
	meterWindow  = time.Minute
	minMeterTime = 5 * time.Second
	// meterInterval is the minimum time between two samples, so that their number is bounded.
	meterInterval = time.Second
)

// Meter estimates when a state ends: the remaining amount at the rate of the last minute.
type Meter struct {
	state   State
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	done int64
}

// Observe takes the progress of a report at a time. Another state, or less progress than before,
// begins again.
func (m *Meter) Observe(r Report, at time.Time) {
	if n := len(m.samples); r.Progress == nil || r.State != m.state || n > 0 && r.Progress.Done < m.samples[n-1].done {
		m.state, m.samples = r.State, m.samples[:0]
	}
	if r.Progress == nil {
		return
	}
	if n := len(m.samples); n > 0 && at.Sub(m.samples[n-1].at) < meterInterval {
		return
	}
	m.samples = append(m.samples, sample{at, r.Progress.Done})
	for at.Sub(m.samples[0].at) > meterWindow {
		m.samples = m.samples[1:]
	}
}

// Estimate returns a report with the time left, if it is known.
func (m *Meter) Estimate(r Report) Report {
	if r.Progress == nil || r.State != m.state || len(m.samples) < 2 {
		return r
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	elapsed, done := last.at.Sub(first.at), last.done-first.done
	if elapsed < minMeterTime || done == 0 {
		return r
	}
	p := *r.Progress
	p.SecondsLeft = float64(max(0, p.Total-p.Done)) / (float64(done) / elapsed.Seconds())
	r.Progress = &p
	return r
}
