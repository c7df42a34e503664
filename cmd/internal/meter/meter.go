// Package meter shows the progress of long jobs.
package meter

import (
	"fmt"
	"time"

	"github.com/cheggaaa/pb/v3"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

// barInterval is the minimum time between two updates of a bar.
const barInterval = 100 * time.Millisecond

// barTemplate and its variant without a total, which has no bar and no remaining time.
const (
	barTemplate        = `{{string . "label"}} {{string . "documents"}}{{counters .}} {{bar .}} {{percent . "%.0f%%"}} {{string . "rate"}} {{string . "left"}}`
	barTemplateNoTotal = `{{string . "label"}} {{string . "documents"}}{{counters .}} {{string . "rate"}} {{etime .}}`
)

// Meter shows the progress of a long job on a terminal: a bar, the rate, and the remaining
// time. It is used by one goroutine.
type Meter struct {
	env     *cli.Env
	total   int64
	started time.Time
	shown   time.Time
	bar     *pb.ProgressBar

	documents, bytes int64
}

// New starts a meter for a job of totalBytes, 0 if unknown. Without a terminal it
// returns nil, which shows nothing; for --quiet a command creates none.
func New(env *cli.Env, label string, totalBytes int64) *Meter {
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
		Set(pb.Static, true). // drawn only by Update
		Set("label", label).
		SetWriter(env.Stderr). // must be set after the other settings
		Start()
	return m
}

// Update sets how much has been done since the start. Jobs that count only bytes pass 0
// documents.
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

// SetTotal changes the total number of bytes.
func (m *Meter) SetTotal(totalBytes int64) {
	if m == nil {
		return
	}
	m.total = totalBytes
	m.bar.SetTotal(totalBytes)
}

// Finish draws the final state, also of a job that was aborted.
func (m *Meter) Finish() {
	if m == nil {
		return
	}
	m.draw(m.env.Now())
	m.bar.Write()
	m.bar.Finish()
	_, _ = fmt.Fprintln(m.env.Stderr) // best effort
}

func (m *Meter) draw(now time.Time) {
	m.bar.SetCurrent(m.bytes)
	if left, ok := m.remaining(now); ok {
		m.bar.Set("left", left.Round(time.Second).String()+" left")
	}
	if m.documents == 0 {
		m.bar.Set("rate", units.FormatBytes(m.perSecond(m.bytes, now))+"/s")
		return
	}
	m.bar.Set("documents", units.FormatCount(m.documents)+" documents, ")
	m.bar.Set("rate", units.FormatCount(m.perSecond(m.documents, now))+"/s")
}

// perSecond returns the average rate since the start.
func (m *Meter) perSecond(n int64, now time.Time) int64 {
	seconds := now.Sub(m.started).Seconds()
	if seconds <= 0 {
		return 0
	}
	return int64(float64(n) / seconds)
}

// remaining estimates the remaining time from the average rate.
func (m *Meter) remaining(now time.Time) (time.Duration, bool) {
	if m.bytes <= 0 {
		return 0, false
	}
	elapsed := now.Sub(m.started)
	return time.Duration(float64(elapsed) * float64(max(m.total-m.bytes, 0)) / float64(m.bytes)), true
}

// Work returns a function that shows how many bytes of a job are done, unless quiet, and one that
// ends the display. If done becomes smaller, the job has begun with another part, which adds to
// the total.
func Work(env *cli.Env, label string, quiet bool) (progress func(done, total int64), finish func()) {
	if quiet {
		return func(int64, int64) {}, func() {}
	}
	var bar *Meter
	var before, beforeTotal, lastDone, lastTotal int64
	progress = func(done, total int64) {
		if done < lastDone {
			before, beforeTotal = before+lastDone, beforeTotal+lastTotal
		}
		lastDone, lastTotal = done, total
		if bar == nil {
			bar = New(env, label, total)
		}
		bar.SetTotal(beforeTotal + total)
		bar.Update(0, before+done)
	}
	return progress, func() { bar.Finish() }
}
