package boxcarrpc

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/internal/conn"
)

// hedgeSlack bounds how late the second attempt of a lone caller may be. A caller
// that reads for itself sets a read deadline, which is expensive, once in this time.
const hedgeSlack = 2 * time.Millisecond

const (
	// A caller reads for itself at least this long, and at most twice as long, before it
	// leaves the reading to the transport's reader. Meanwhile it does not notice the
	// cancellation of its context: this is the maximum delay.
	ownReading = 10 * time.Millisecond
	// The transport's reader takes a free turn when no caller has used it for this long, or
	// for twice as long.
	idleReading = 20 * time.Millisecond
)

// The read turn of a transport is the right to read from it. The holder handles the frames
// of all callers. The transport has a reader, a goroutine for this. With many concurrent
// callers the reader is best, because one read delivers the answers of many. A lone caller
// would pay for it with two goroutine switches, so it reads for itself:
//
//   - A caller that has sent its request while no other is in flight takes the turn
//     if it is free. When it has its answer it frees the turn, or passes it to the
//     reader if there are other requests by then or if it has read for its maximum
//     time.
//   - The reader frees the turn when it has read the answer of a lone caller. It
//     takes the turn back when it has been free and unused for a while, to notice
//     the end of the connection and notices from the server.
//
// The simpler design was a goroutine that always reads and one that always writes, which
// every call of a lone caller woke: server_turn.go has the figures.
//
// Invariants:
//
//   - Only the holder uses in, answers, bulk and armed. held is set before, and
//     cleared or passed on through the channel after.
//   - While a request is outstanding the turn is held: taking it while it is free
//     and starting the first request are one step under transport.mu, and so are
//     freeing it and checking that nothing is outstanding.
//   - The holder waits for nothing but the connection.
type readTurn struct {
	in      conn.Reader
	answers int           // answers to callers since the turn was taken or the last read
	bulk    bool          // a part of a large response arrived since the reader last checked
	armed   time.Time     // read deadline of the connection; zero for none
	clock   int64         // pool time of the last read
	pass    chan struct{} // passes the turn to the reader
	ended   chan struct{} // closed when the transport has ended

	// Guarded by transport.mu.
	held  bool
	taken uint64 // number of times that callers have taken it
}

func (r *readTurn) init(nc net.Conn) {
	r.in.Init(nc, nil)
	r.pass, r.ended = make(chan struct{}, 1), make(chan struct{})
	r.held = true // by the goroutine that makes the transport, then by its reader
}

// take takes the turn for a caller if it is free. transport.mu is held.
func (r *readTurn) take() bool {
	if r.held {
		return false
	}
	r.held = true
	r.taken++
	return true
}

// takeUnused takes the turn for the reader if it is free and no caller has taken it since
// *taken was set.
func (t *transport) takeUnused(taken *uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	unused := t.turn.taken == *taken && !t.turn.held
	*taken = t.turn.taken
	if unused {
		t.turn.held = true
	}
	return unused
}

// free gives up the turn if no answer is outstanding.
func (t *transport) free() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outstanding.Load() > 0 {
		return false
	}
	t.turn.held = false
	return true
}

// run is the reader goroutine. It ends with the transport.
func (t *transport) run() {
	defer t.ended()
	timer := time.NewTimer(idleReading)
	defer timer.Stop()
	var taken uint64
	for holds := true; ; {
		if holds && !t.readForAll() {
			return
		}
		timer.Reset(idleReading)
		select {
		case <-t.turn.pass:
			holds = true
		case <-timer.C:
			holds = t.takeUnused(&taken)
		case <-t.turn.ended:
			return
		}
	}
}

// ended waits until the transport has ended and no goroutine writes any more. The goroutine
// that ends the transport may not have closed the outbox yet: until then a writer may still
// start.
func (t *transport) ended() {
	<-t.turn.ended
	t.out.Wait()
}

// readForAll is the turn of the reader. It returns false when the transport has ended.
func (t *transport) readForAll() bool {
	if !t.turn.armed.IsZero() {
		if err := t.arm(time.Time{}); err != nil {
			t.fail(err)
			return false
		}
	}
	for {
		t.turn.answers = 0
		err := t.takeBuffered()
		if err == nil && t.turn.answers == 1 && t.free() {
			return true
		}
		if t.turn.bulk {
			t.turn.bulk = false
			runtime.Gosched() // callers with small answers run before the next read
		}
		if err == nil {
			err = t.turn.in.Read()
			t.turn.clock = t.members.now()
		}
		if err != nil {
			t.failRead(err)
			return false
		}
	}
}

// readFor is the turn of a lone caller: until its answer has come, or for its maximum time,
// which is not much longer than hedgeAfter unless this is 0.
func (t *transport) readFor(lane *clientLane, deadline time.Time, hedgeAfter time.Duration) {
	least, most := ownReading, 2*ownReading
	if hedgeAfter > 0 {
		least, most = min(least, hedgeAfter), min(most, hedgeAfter+hedgeSlack)
	}
	now := t.members.start.Add(time.Duration(lane.picked))
	until := t.turn.armed // kept if it is suitable, because setting it is expensive
	if left := until.Sub(now); left < least || left > most {
		until = now.Add(most)
	}
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	if !until.Equal(t.turn.armed) {
		if err := t.arm(until); err != nil {
			t.fail(err)
			return
		}
	}
	for {
		err := t.takeBuffered()
		if err == nil && len(lane.events) > 0 {
			break
		}
		if err == nil {
			err = t.turn.in.Read()
			t.turn.clock = t.members.now()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			lane.watchContext()
			break
		}
		if err != nil {
			t.failRead(err)
			return
		}
	}
	if !t.free() {
		t.turn.pass <- struct{}{}
	}
}

// arm sets the connection's read deadline.
func (t *transport) arm(until time.Time) error {
	t.turn.armed = until
	return t.conn.SetReadDeadline(until)
}

// takeBuffered handles the whole frames in the buffer.
func (t *transport) takeBuffered() error {
	for {
		f, ok, err := t.turn.in.Buffered()
		if err != nil || !ok {
			return err
		}
		if err := t.frame(f); err != nil {
			return err
		}
	}
}

// failRead fails the transport. The turn stays taken.
func (t *transport) failRead(err error) {
	if errors.Is(err, io.EOF) {
		err = errClosed
	}
	t.fail(err)
}

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
	if s.visit() {
		s.idleSweeps = 0
	}
	if s.idleSweeps >= sweeperIdleSweeps {
		// A call that starts to wait now either sees that the sweeper is stopped or is
		// found by the second visit.
		s.idleSweeps = 0
		s.running.Store(false)
		if !s.visit() || !s.running.CompareAndSwap(false, true) {
			return
		}
	}
	s.timer.Reset(ownReading)
}

// visit visits every waiting call and reports whether there is one. members.mu is held.
func (s *cancelSweeper) visit() (waiting bool) {
	for _, t := range s.members.mu.open {
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
