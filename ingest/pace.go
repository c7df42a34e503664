package ingest

import (
	"context"
	"time"

	"docstore/internal/ctxtime"
)

// MaxRate is the maximum of Options.Rate.
const MaxRate = 1e9

// paceStep is how far appending may be ahead of its pace: shorter sleeps are inaccurate.
const paceStep = 5 * time.Millisecond

// pace limits the rate of a goroutine. Time that was not used is lost.
type pace struct {
	interval time.Duration
	next     time.Time
}

// wait waits until the next entry may be appended. It returns false if ctx ends.
func (p *pace) wait(ctx context.Context, now time.Time) bool {
	ahead := p.reserve(now)
	return ahead < paceStep || ctxtime.Sleep(ctx, ahead)
}

// reserve returns how long to wait.
func (p *pace) reserve(now time.Time) time.Duration {
	if p.next.Before(now) {
		p.next = now
	}
	ahead := p.next.Sub(now)
	p.next = p.next.Add(p.interval)
	return ahead
}
