package boxcarrpc

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"docstore/boxcarrpc/internal/conn"
)

const (
	// A caller reads for himself at least this long, and at most twice as long,
	// before he leaves it to the transport's reader. While he reads he does not
	// see that his context was cancelled: that is how late he may be.
	ownReading = 10 * time.Millisecond
	// When nobody has read for this long, or twice as long, the transport's
	// reader does.
	idleReading = 20 * time.Millisecond
)

// The read turn of a transport: who reads takes the frames of all. The
// transport has a reader, a goroutine of its own, for when there is nobody
// better. With many callers under way that is best, because one read brings
// the answers of many. A lone caller would pay for it with two changes of
// goroutine, so he reads for himself:
//
//   - A caller who has sent his request while no other is under way takes the
//     turn if it is free. When he has his answer he frees it, or, if others have
//     come meanwhile, passes it to the reader; to the reader too, if his answer
//     takes longer than he may read.
//   - The reader frees the turn when what it has read was the answer of a lone
//     caller. It takes it back when it has been free and unused for a while, so
//     that the end of the connection and what the server says unasked is seen.
//
// Simpler was a reader that always reads and a writer that always writes, which
// every call of a lone caller woke: server_turn.go has the figures.
//
// Invariants:
//
//   - Only the holder touches in, answers, bulk and armed. held is set before he does
//     and cleared, or passed on through the channel, after.
//   - With a request outstanding the turn is held: taking it while it is free
//     and the first request is begun are one step under transport.mu, and so are
//     freeing it and the look that nothing is outstanding.
//   - The holder never waits for anything but the connection.
type readTurn struct {
	in      conn.Reader
	answers int           // to callers, since the turn was taken or the last read
	bulk    bool          // some of a large answer came since the reader last looked
	armed   time.Time     // the connection's read deadline; zero for none
	clock   int64         // the pool's time as of the last read
	pass    chan struct{} // gives the turn to the reader
	ended   chan struct{} // closed when the transport has ended

	// Guarded by transport.mu.
	held  bool
	taken uint64 // how often callers have taken it
}

func (r *readTurn) init(nc net.Conn) {
	r.in.Init(nc, conn.NoAccount{})
	r.pass, r.ended = make(chan struct{}, 1), make(chan struct{})
	r.held = true // by whoever makes the transport, and then by its reader
}

// take takes the turn for a caller, if it is free. transport.mu is held.
func (r *readTurn) take() bool {
	if r.held {
		return false
	}
	r.held = true
	r.taken++
	return true
}

// takeUnused takes the turn for the reader if no caller has taken it since it
// was that often.
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

// free gives the turn up, if there is nothing to read for.
func (t *transport) free() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outstanding.Load() > 0 {
		return false
	}
	t.turn.held = false
	return true
}

// run is the reader. It ends with the transport.
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

// ended waits until nobody writes any more. Who ends the transport may not have closed
// the outbox yet: until then a writer may still begin.
func (t *transport) ended() {
	<-t.turn.ended
	t.out.Wait()
}

// readForAll is the reader's turn. It returns false when the transport has ended.
func (t *transport) readForAll() bool {
	if err := t.arm(time.Time{}); err != nil {
		t.fail(err)
		return false
	}
	for {
		t.turn.answers = 0
		err := t.takeBuffered()
		if err == nil && t.turn.answers == 1 && t.free() {
			return true
		}
		if t.turn.bulk {
			t.turn.bulk = false
			runtime.Gosched() // whose small answer came beside it goes before the next
		}
		if err == nil {
			err = t.read()
		}
		if err != nil {
			t.endOfReading(err)
			return false
		}
	}
}

// readFor is the turn of a lone caller: until his answer has come, or for as long
// as he may.
func (t *transport) readFor(lane *clientLane, deadline time.Time) {
	now := t.pool.start.Add(time.Duration(lane.picked))
	if err := t.arm(ownDeadline(now, t.turn.armed, deadline)); err != nil {
		t.fail(err)
		return
	}
	for {
		err := t.takeBuffered()
		if err == nil && len(lane.events) > 0 {
			break
		}
		if err == nil {
			err = t.read()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			lane.watchContext()
			break
		}
		if err != nil {
			t.endOfReading(err)
			return
		}
	}
	if !t.free() {
		t.turn.pass <- struct{}{}
	}
}

// ownDeadline is until when a caller reads for himself: as the connection is
// armed, if that will do, because setting it costs.
func ownDeadline(now, armed, deadline time.Time) time.Time {
	until := armed
	if left := until.Sub(now); left < ownReading || left > 2*ownReading {
		until = now.Add(2 * ownReading)
	}
	if !deadline.IsZero() && deadline.Before(until) {
		return deadline
	}
	return until
}

// arm sets the connection's read deadline, if it is another.
func (t *transport) arm(until time.Time) error {
	if until.Equal(t.turn.armed) {
		return nil
	}
	t.turn.armed = until
	return t.conn.SetReadDeadline(until)
}

// read waits for more bytes.
func (t *transport) read() error {
	err := t.turn.in.Read()
	t.turn.clock = t.pool.now()
	return err
}

// takeBuffered takes the whole frames that have been read.
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

// endOfReading ends the transport. Nobody gets the turn any more.
func (t *transport) endOfReading(err error) {
	if errors.Is(err, io.EOF) {
		err = errClosed
	}
	t.fail(err)
}
