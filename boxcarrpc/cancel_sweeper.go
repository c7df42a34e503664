package boxcarrpc

import (
	"math"
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
	members    *members
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

func (s *cancelSweeper) init(m *members) {
	s.members, s.timer = m, time.AfterFunc(math.MaxInt64, s.sweep)
}

// start starts the sweeper if it is stopped. The caller's lane is already in the waiting
// state.
func (s *cancelSweeper) start() {
	if !s.running.Load() && s.running.CompareAndSwap(false, true) {
		s.timer.Reset(ownReading)
	}
}

// sweep is the sweeper's timer function.
func (s *cancelSweeper) sweep() {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if s.members.mu.closed {
		return
	}
	s.idleSweeps++
	if s.members.visitTransports() {
		s.idleSweeps = 0
	}
	if s.idleSweeps >= sweeperIdleSweeps {
		// A call that starts to wait now either sees that the sweeper is stopped or is
		// found by the second visit.
		s.idleSweeps = 0
		s.running.Store(false)
		if !s.members.visitTransports() || !s.running.CompareAndSwap(false, true) {
			return
		}
	}
	s.timer.Reset(ownReading)
}

// visitTransports visits every waiting call and reports whether there is one. m.mu is
// held.
func (m *members) visitTransports() (waiting bool) {
	for _, t := range m.mu.open {
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
