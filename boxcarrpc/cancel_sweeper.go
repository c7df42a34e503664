package boxcarrpc

import (
	"context"
	"sync/atomic"
	"time"
)

// An event is sent to the caller of a request on its lane.
type event uint8

const (
	ended        event = iota // the response is complete, or the transport has failed
	watchContext              // the caller must also wait for its context
)

// A cancelSweeper makes calls that take long notice the end of their contexts.
//
// Waiting for two channels costs a caller more than waiting for one: with 64 callers it
// took 10 % of a client's processor time. Most answers come soon, so a call first waits for
// its answer only. The sweeper runs every ownReading while calls wait; a call that two
// sweeps have visited also waits for its context. A call may therefore notice its
// cancellation up to two sweeps late. If the deadline is near, the call waits for its
// context from the start.
type cancelSweeper struct {
	timer      *time.Timer
	running    atomic.Bool // the timer is set
	idleSweeps int         // consecutive sweeps that found no waiting call; used by the timer only
}

const (
	// The sweeper stops after this many sweeps that found no waiting call.
	sweeperIdleSweeps = 4
	// A deadline nearer than this may pass before the sweeper has visited twice.
	nearDeadline = 3 * ownReading
)

// start starts the sweeper if it is stopped. The caller's lane is already in the waiting
// state.
func (s *cancelSweeper) start() {
	if !s.running.Load() && s.running.CompareAndSwap(false, true) {
		s.timer.Reset(ownReading)
	}
}

// sweep is the sweeper's timer function.
func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	s := &p.sweeper
	s.idleSweeps++
	if p.visitTransports() {
		s.idleSweeps = 0
	}
	if s.idleSweeps >= sweeperIdleSweeps {
		// A call that starts to wait now either sees that the sweeper is stopped or is
		// found by the second visit.
		s.idleSweeps = 0
		s.running.Store(false)
		if !p.visitTransports() || !s.running.CompareAndSwap(false, true) {
			return
		}
	}
	s.timer.Reset(ownReading)
}

// visitTransports visits every waiting call and reports whether there is one. p.mu is
// held.
func (p *Pool) visitTransports() (waiting bool) {
	for _, t := range p.mu.open {
		if t.outstanding.Load() > 0 && t.visit() {
			waiting = true
		}
	}
	return waiting
}

// visit visits the calls of one transport that wait for their answer only.
func (t *transport) visit() (waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lane := range t.mu.lanes {
		if lane.state != clientWaiting || !lane.alone {
			continue
		}
		waiting = true
		if lane.visited {
			lane.watchContextLocked()
		}
		lane.visited = true
	}
	return waiting
}

// watchContextLocked makes a caller that waits for its answer only wait for its context
// as well.
func (l *clientLane) watchContextLocked() {
	if l.state == clientWaiting && l.alone {
		l.alone = false
		l.events <- watchContext
	}
}

// watchContext is called by a caller whose time to read for itself is over: it need not
// wait for two sweeps.
func (l *clientLane) watchContext() {
	l.transport.mu.Lock()
	defer l.transport.mu.Unlock()
	l.watchContextLocked()
}

// await waits for the end of a request: for the answer only at first if alone is set. It
// returns false if the context ended first and the call has been abandoned.
func (p *Pool) await(ctx context.Context, lane *clientLane, alone bool) bool {
	if alone {
		if len(lane.events) == 0 {
			p.sweeper.start()
		}
		if <-lane.events == ended {
			return true
		}
	}
	select {
	case <-lane.events: // watchContext came before
		return true
	case <-ctx.Done():
		if !lane.abandon() {
			return false
		}
	}
	<-lane.events
	return true
}
