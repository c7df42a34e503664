package boxcarrpc

import (
	"context"
	"sync/atomic"
	"time"
)

// An event is what the caller of a request waits for.
type event uint8

const (
	ended event = iota // the response is complete, or cannot come
	look               // wait for your context as well
)

// A patrol is how calls that take long hear of the end of their contexts.
//
// Waiting for two channels costs a caller more than waiting for one, and most
// answers come soon: with 64 callers that made 10 % of a client's processor
// time. So a call waits for its answer alone at first. Every ownReading, while
// calls wait, the patrol passes, and who is met a second time is sent to wait for
// both. So a call may be that late to see that it was cancelled. A deadline that
// is near is waited for from the start.
type patrol struct {
	timer *time.Timer
	out   atomic.Bool // the timer runs
	quiet int         // the timer's: rounds that have met nobody
}

const (
	// A patrol goes home after so many rounds that have met nobody.
	patrolQuiet = 4
	// A deadline is near if the patrol may come too late for it.
	nearDeadline = 3 * ownReading
)

// begin has the patrol out. The caller's lane shows already that he waits.
func (r *patrol) begin() {
	if !r.out.Load() && r.out.CompareAndSwap(false, true) {
		r.timer.Reset(ownReading)
	}
}

// passBy is a round of the patrol.
func (p *Pool) passBy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	r := &p.patrol
	r.quiet++
	if p.meetAll() {
		r.quiet = 0
	}
	if r.quiet >= patrolQuiet {
		// A call that begins to wait now either sees that the patrol is not out, or
		// is met here.
		r.quiet = 0
		r.out.Store(false)
		if !p.meetAll() || !r.out.CompareAndSwap(false, true) {
			return
		}
	}
	r.timer.Reset(ownReading)
}

// meetAll reports whether anybody waits. p.mu is held.
func (p *Pool) meetAll() (waiting bool) {
	for _, t := range p.mu.open {
		if t.outstanding.Load() > 0 && t.meet() {
			waiting = true
		}
	}
	return waiting
}

// meet meets the callers who wait for a transport's answers alone.
func (t *transport) meet() (waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lane := range t.mu.lanes {
		if lane.state != clientWaiting || !lane.alone {
			continue
		}
		waiting = true
		if lane.met {
			lane.lookLocked()
		}
		lane.met = true
	}
	return waiting
}

// lookLocked sends a caller who waits alone to wait for his context as well.
func (l *clientLane) lookLocked() {
	if l.state == clientWaiting && l.alone {
		l.alone = false
		l.events <- look
	}
}

// look is for a caller who has read for himself for as long as he may. What is
// left of his wait is not worth the patrol's two rounds.
func (l *clientLane) look() {
	l.transport.mu.Lock()
	defer l.transport.mu.Unlock()
	l.lookLocked()
}

// await waits for the end of a request: for that alone at first, if the lane was
// sent so. It returns false if the call has been abandoned, because its context
// ended before.
func (p *Pool) await(ctx context.Context, lane *clientLane, alone bool) bool {
	if alone {
		if len(lane.events) == 0 {
			p.patrol.begin()
		}
		if <-lane.events == ended {
			return true
		}
	}
	select {
	case <-lane.events: // it was told to look already
		return true
	case <-ctx.Done():
		if !lane.abandon() {
			return false
		}
	}
	<-lane.events
	return true
}
