package boxcarrpc

import (
	"errors"
	"io"
	"math"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// The leader of a connection is the worker that holds its read turn. It reads
// what has come, runs the handler of each request itself, and sends all the
// answers in one write when there is no whole frame left to serve. So a batch
// of requests costs one read, one write and no change of goroutine.
//
// A handler that takes its time must not hold up the others. If one runs on for
// a tick of the watch, the watch gives the turn to a follower, another worker:
// that sends the answers finished so far, serves the unstarted rest of the batch
// and reads on. The former leader finishes its one request and is a worker like
// any. Methods that were slow lately are not tried: each of their requests goes
// to a worker at once.
//
// Simpler was a worker for every request, a goroutine that reads and one that
// writes, on the client too. In three interleaved runs of bench/rpcbench on 2 busy
// processors that had, against the bare echo with one caller, 0.45, 0.60 and 0.66
// of its rate, and this 0.73, 0.89 and 0.94; with 64 callers 296,000, 219,000 and
// 322,000 calls a second, and this 388,000, 432,000 and 408,000.
//
// Invariants:
//
//   - Only the leader touches in, method, partialSince, idleSet, checked, ready,
//     number, clock, held, notPrefetched and lastOK.
//   - running is 0 unless the leader is in a handler; then it is the number of
//     that run, and no two runs have the same. Who swaps it back to 0 has the
//     turn: the leader after the handler, or the watch for a follower. The other
//     of the two finds it changed and touches nothing of the turn any more.
//   - The leader waits for nothing but the connection: to read, and, above the
//     output budget, to write. For a bulk answer it passes the turn on first.
type serverTurn struct {
	ready  *serverLane // its request is complete: to be served next
	number uint64      // of the last run of a handler
	clock  time.Time   // as of the last read, or the end of the last handler
	held   time.Time   // when the first answer was finished that is not yet sent; zero if none

	frames        uint // taken
	notPrefetched int  // unread bytes behind the requests that prefetchRequests has seen
	lastOK        bool // the last request got an answer without an error

	running   atomic.Uint64
	crowded   atomic.Bool // requests waited behind others since the last tick
	monitored atomic.Bool // the handler monitor checks the connection
	seen      uint64      // the watch's: running at the last tick
	idle      int         // the watch's: ticks without a run
}

const (
	// A connection is not read while its peer leaves so many bytes of small messages
	// unread: answers of one frame, answers to PING and to LEASE. A batch of answers to
	// a busy client has less.
	maxUnread = 1 << 20
	// The same while the budget is tight: many peers may do it at once.
	maxUnreadTight = 16 << 10
	// The unread bytes are looked at again after so many frames: one batch that was read
	// may ask for many answers.
	framesUnread = 16
)

// errOvertaken ends a leader's turn, not the connection.
var errOvertaken = errors.New("a follower has the turn")

// work leads the connection.
func (c *serverConn) work() {
	var err error
	if !c.greeted {
		err = c.handshake()
	}
	if err == nil {
		c.out.Flush(false) // what the leader before had finished
		c.holdBack()
		c.turn.held, c.turn.clock = time.Time{}, time.Now()
		err = c.lead()
	}
	if errors.Is(err, errOvertaken) {
		return
	}
	c.out.Flush(false)
	c.end()
	conn.Close(c.conn)
	c.out.Wait()
	c.in.Free()
	c.account.Close()
	c.report(err)
	c.server.removeConn(c)
}

// lead serves frames until the connection ends or somebody else has the turn.
func (c *serverConn) lead() error {
	for {
		if !c.prefetchRequests() {
			return errOvertaken
		}
		f, ok, err := c.in.Buffered()
		if err != nil {
			return err
		}
		if !ok {
			c.out.Flush(false)
			c.turn.held = time.Time{}
			if err := c.in.Read(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			c.turn.clock, c.turn.notPrefetched = time.Now(), math.MaxInt
			if !c.enforceAuth(c.turn.clock) {
				return errOvertaken
			}
			continue
		}
		c.partialSince = time.Time{}
		c.turn.frames++
		if (c.turn.frames%framesUnread == 0 || c.account.isTight()) && !c.out.Below(c.unreadLimit()) {
			c.out.Flush(false)
			c.holdBack()
		}
		if err := c.frame(f); err != nil {
			return err
		}
		if !c.serveReady() {
			return errOvertaken
		}
	}
}

// serveReady serves the request that the last frame has completed, if it has.
// It reports whether the turn is still the caller's.
func (c *serverConn) serveReady() (leads bool) {
	lane := c.turn.ready
	switch c.turn.ready = nil; {
	case lane == nil:
		return true
	case !lane.method.quick():
		c.server.workers.run(lane)
		return true
	}
	return c.serve(lane)
}

// serve runs a handler in the leader.
func (c *serverConn) serve(lane *serverLane) (leads bool) {
	m := lane.method
	out := m.buffer()
	start := c.turn.clock
	number := c.turn.begin(&c.server.monitor, c)
	returned := false
	defer func() {
		if returned {
			return
		}
		lane.quit()
		if c.turn.running.CompareAndSwap(number, 0) {
			c.server.workers.run(c)
		}
	}()
	answer, flags, data := lane.call(start, out)
	returned = true
	leads = c.turn.running.CompareAndSwap(number, 0)
	end := time.Now()
	c.took(m, start, end)
	bulk, pending := lane.respond(answer, flags, data)
	switch {
	case leads && bulk != nil:
		c.server.workers.run(c)
		leads = false
	case !leads:
		c.out.Flush(true)
	default:
		c.turn.lastOK = answer.Code == uint32(CodeOK)
		c.hold(end, pending)
	}
	lane.conn.settle(m, out, data, bulk)
	return leads
}

// took learns from what was run in a leader.
func (c *serverConn) took(m *method, start, end time.Time) {
	took := end.Sub(start)
	m.record(took)
	if took > longHandler {
		c.server.monitor.noteLong(end)
	}
}

// hold keeps finished answers for the end of the batch, if that is not far and they
// are not many. now is the leader's clock.
func (c *serverConn) hold(now time.Time, pending int) {
	c.turn.clock = now
	switch {
	case c.turn.held.IsZero():
		c.turn.held = now
	case now.Sub(c.turn.held) > monitorTick, pending >= conn.BatchBytes:
		c.out.Flush(false)
		c.turn.held = time.Time{}
	}
}

// begin marks the leader as being in a handler.
func (t *serverTurn) begin(m *handlerMonitor, c *serverConn) (number uint64) {
	t.number++
	number = t.number
	if len(c.in.Unread()) > 0 && !t.crowded.Load() {
		t.crowded.Store(true)
		m.shortenTick()
	}
	t.running.Store(number) // from here on the turn may be a follower's
	if !t.monitored.Load() {
		m.add(c)
	}
	return number
}

// work runs a slow handler.
func (l *serverLane) work() {
	c, m := l.conn, l.method
	out := m.buffer()
	start := time.Now()
	returned := false
	defer func() {
		if !returned {
			l.quit()
		}
	}()
	answer, flags, data := l.call(start, out)
	returned = true
	m.record(time.Since(start))
	bulk, _ := l.respond(answer, flags, data)
	c.out.Flush(true)
	c.settle(m, out, data, bulk)
}

// quit answers for a handler that ends its goroutine, from a deferred function.
// The goroutine is lost, and the method counts as slow, so that it costs no
// leader soon again.
func (l *serverLane) quit() {
	l.method.slow.Store(slowMemory)
	l.conn.server.counts.panics.Add(1)
	l.conn.server.counts.errors.Add(1)
	l.respond(wire.Response{Code: uint32(CodeInternal)}, wire.FlagProcessed|wire.FlagSlotLost,
		[]byte("the handler ended its goroutine"))
	l.conn.out.Flush(false)
}
