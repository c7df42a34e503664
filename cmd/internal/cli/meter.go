package cli

import (
	"fmt"
	"time"

	"github.com/cheggaaa/pb/v3"
)

// barInterval is between two drawings of a bar.
const barInterval = 100 * time.Millisecond

// barTemplate shows what is known: without a total there is no bar to fill and
// no time that remains.
const (
	barTemplate        = `{{string . "label"}} {{string . "documents"}}{{counters .}} {{bar .}} {{percent . "%.0f%%"}} {{string . "rate"}} {{string . "left"}}`
	barTemplateNoTotal = `{{string . "label"}} {{string . "documents"}}{{counters .}} {{string . "rate"}} {{etime .}}`
)

// Meter shows on a terminal how far a long job has come: a bar, the rate, and how long the
// rest takes. It belongs to one goroutine.
type Meter struct {
	env     *Env
	total   int64
	started time.Time
	shown   time.Time
	bar     *pb.ProgressBar

	documents, bytes int64
}

// NewMeter begins to measure a job of so many bytes, 0 if nobody knows. It is nil, and so
// shows nothing, where there is no terminal; for --quiet a command makes none.
func NewMeter(env *Env, label string, totalBytes int64) *Meter {
	if !env.Terminal {
		return nil
	}
	m := &Meter{env: env, total: totalBytes, started: env.Now()}
	m.shown = m.started
	template := barTemplate
	if totalBytes <= 0 {
		template = barTemplateNoTotal
	}
	m.bar = pb.New64(totalBytes).
		SetTemplateString(template).
		Set(pb.Terminal, true).
		Set(pb.Bytes, true).
		Set(pb.Static, true). // drawn by Update alone
		Set("label", label).
		SetWriter(env.Stderr). // after the settings, which it takes over
		Start()
	return m
}

// Update says how much has been done since the start of the job. A job that
// counts bytes alone leaves documents 0.
func (m *Meter) Update(documents, bytes int64) {
	if m == nil {
		return
	}
	m.documents, m.bytes = documents, bytes
	now := m.env.Now()
	if now.Sub(m.shown) < barInterval {
		return
	}
	m.draw(now)
	m.bar.Write()
	m.shown = now
}

// SetTotal corrects the number of bytes of the whole job.
func (m *Meter) SetTotal(totalBytes int64) {
	if m == nil {
		return
	}
	m.total = totalBytes
	m.bar.SetTotal(totalBytes)
}

// Finish shows the last state; the job is done or has been given up.
func (m *Meter) Finish() {
	if m == nil {
		return
	}
	m.draw(m.env.Now())
	m.bar.Write()
	m.bar.Finish()
	_, _ = fmt.Fprintln(m.env.Stderr) // a terminal that is gone has nothing to be told
}

func (m *Meter) draw(now time.Time) {
	m.bar.SetCurrent(m.bytes)
	if left, ok := m.remaining(now); ok {
		m.bar.Set("left", left.Round(time.Second).String()+" left")
	}
	if m.documents == 0 {
		m.bar.Set("rate", FormatBytes(m.perSecond(m.bytes, now))+"/s")
		return
	}
	m.bar.Set("documents", FormatCount(m.documents)+" documents, ")
	m.bar.Set("rate", FormatCount(m.perSecond(m.documents, now))+"/s")
}

// perSecond is a rate over the whole job.
func (m *Meter) perSecond(n int64, now time.Time) int64 {
	seconds := now.Sub(m.started).Seconds()
	if seconds <= 0 {
		return 0
	}
	return int64(float64(n) / seconds)
}

// remaining is how long the rest takes at the rate so far.
func (m *Meter) remaining(now time.Time) (time.Duration, bool) {
	if m.bytes <= 0 {
		return 0, false
	}
	elapsed := now.Sub(m.started)
	return time.Duration(float64(elapsed) * float64(max(m.total-m.bytes, 0)) / float64(m.bytes)), true
}
