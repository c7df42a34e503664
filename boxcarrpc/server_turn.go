package boxcarrpc

import (
	"errors"
	"io"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/turns"
	"docstore/boxcarrpc/internal/wire"
)

// The leader of a connection is the worker that holds its read turn. It reads the available
// bytes, runs the handler of each request itself, and sends the responses when no whole frame
// is left, or in parts that core.Pipeline chooses. So a batch of requests costs one read, few
// writes and no goroutine switch.
//
// A slow handler must not delay the others. If one runs for a tick of the monitor, a follower
// gets the turn: it sends the responses finished so far, serves the rest of the batch and
// reads on. The former leader finishes its one request: see package turns. Methods that were slow
// recently run in a worker from the start.
//
// The simpler design was a worker for each request and one goroutine each for reading and
// writing, on the client too. In three interleaved runs of bench/rpcbench on 2 busy
// processors it reached 0.45, 0.60 and 0.66 of the rate of a bare echo with one caller, and
// this design 0.73, 0.89 and 0.94; with 64 callers 296,000, 219,000 and 322,000 calls a
// second, and this design 388,000, 432,000 and 408,000.
//
// Invariants:
//
//   - Only the leader uses in, method, partialSince, idleSet, checked, ready,
//     clock, held, pipeline, begun and permit.
//   - The leader waits for nothing but the connection: to read and, above the
//     output limit, to write.
type serverTurn struct {
	turns.Turn
	ready  *serverLane    // its request is complete and is served next
	clock  time.Time      // time of the last read or of the end of the last handler
	held   time.Time      // when the first unsent response was finished; zero if none
	begun  time.Time      // when the batch began
	permit *budget.Permit // for the batch; nil if it needs none

	pipeline core.Pipeline

	frames uint // handled
}

const (
	// A connection is not read while its peer leaves this many bytes of small messages
	// unread: responses of one frame and answers to PING and LEASE. A batch of responses to
	// a busy client is smaller.
	maxUnread = 1 << 20
	// The same while the budget is tight: many peers may do this at once.
	maxUnreadTight = 16 << 10
	// A finished response waits this long for others, plus the time of one handler: a write, and
	// the read that it causes, take up to 40 us of processor time.
	maxHeld = 250 * time.Microsecond
	// The processor time that a new connection costs, approximately.
	handshakeSpent = 100 * time.Microsecond
	// The unread bytes are checked after this many frames: one batch of frames may cause
	// many responses.
	framesUnread = 16
)

// errOvertaken ends the turn of a leader, not the connection.
var errOvertaken = errors.New("a follower has the turn")

// Work is the leader of the connection.
func (c *serverConn) Work() {
	var err error
	if !c.greeted {
		err = c.handshake()
		now := time.Now()
		c.account.Spend(now, now.Add(handshakeSpent)) // most of its time it waits for the peer
		c.turn.begun = now
	}
	if err == nil {
		c.sendHeld() // responses of the previous leader
		c.holdBack()
		c.turn.clock = time.Now()
		c.turn.begun = c.turn.clock
		err = c.lead()
	}
	if errors.Is(err, errOvertaken) {
		return
	}
	c.endBatch(time.Now())
	c.out.Flush(false)
	if c.session != nil {
		c.session.Close()
	}
	c.end()
	conn.Close(c.conn)
	c.out.Wait()
	c.in.Free()
	c.account.Close()
	c.report(err)
	c.server.removeConn(c)
}

// lead serves frames until the connection ends or a follower has the turn.
func (c *serverConn) lead() error {
	for {
		f, ok, err := c.in.Buffered()
		if err != nil {
			return err
		}
		if !ok {
			c.sendHeld()
			if err := c.in.Read(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			c.turn.clock = time.Now()
			c.beginBatch(c.turn.clock)
			if !c.enforceAuth(c.turn.clock) {
				return errOvertaken
			}
			continue
		}
		c.partialSince = time.Time{}
		c.turn.frames++
		if (c.turn.frames%framesUnread == 0 || c.account.Tight()) && !c.out.Below(c.unreadLimit()) {
			c.out.Flush(false)
			c.endBatch(time.Now())
			c.holdBack()
			c.beginBatch(time.Now())
		}
		if err := c.frame(f); err != nil {
			return err
		}
		if !c.serveReady() {
			return errOvertaken
		}
	}
}

// beginBatch begins a batch of frames. It waits while the client has used more than its
// share of the processors.
func (c *serverConn) beginBatch(now time.Time) {
	c.turn.begun = now
	if c.turn.permit = c.account.Batch(); c.turn.permit != nil {
		c.turn.begun = time.Now()
	}
}

// endBatch records the time of the batch.
func (c *serverConn) endBatch(now time.Time) {
	c.account.Spend(c.turn.begun, now)
	c.turn.begun = now
	c.turn.permit.End()
	c.turn.permit = nil
}

// serveReady serves the request that the last frame has completed, if any. It reports
// whether the caller still has the turn.
func (c *serverConn) serveReady() (leads bool) {
	lane := c.turn.ready
	switch c.turn.ready = nil; {
	case lane == nil:
		return true
	case !lane.method.quick():
		c.server.workers.Run(lane)
		return true
	}
	return c.serve(lane)
}

// serve runs a handler in the leader.
func (c *serverConn) serve(lane *serverLane) (leads bool) {
	m := lane.method
	out := m.buffer()
	start := c.turn.clock
	number := c.beginRun()
	returned := false
	defer func() {
		if returned {
			return
		}
		lane.respondGoexit()
		if c.turn.End(number) {
			c.server.workers.Run(c)
		}
	}()
	answer, flags, data := lane.call(start, out)
	returned = true
	leads = c.turn.End(number)
	end := start.Add(time.Since(start)) // reads one clock, time.Now reads two
	c.recordRun(m, start, end)
	pending := lane.respond(answer, flags, out, data)
	if !leads {
		c.out.Flush(true)
		return false
	}
	c.delayResponses(end, pending)
	return true
}

// recordRun records the duration of a function that ran in the leader.
func (c *serverConn) recordRun(m *method, start, end time.Time) {
	took := end.Sub(start)
	m.record(took)
	c.server.monitor.Ran(took, end)
}

// delayResponses delays responses until the end of the batch, unless they are a part of the
// pipeline, have waited for long or are large. now is the leader's clock.
func (c *serverConn) delayResponses(now time.Time, pending int) {
	c.turn.clock = now
	if c.turn.held.IsZero() {
		c.turn.held = now
	}
	if c.turn.pipeline.Response() || now.Sub(c.turn.held) > maxHeld || pending >= conn.BatchBytes {
		c.sendHeld()
	}
}

// sendHeld sends the delayed responses.
func (c *serverConn) sendHeld() {
	c.out.Flush(false)
	c.turn.held = time.Time{}
	c.turn.pipeline.Written()
}

// beginRun marks the leader as running a handler, or another function that may take long.
func (c *serverConn) beginRun() (number uint64) {
	return c.turn.Begin(&c.server.monitor, len(c.in.Unread()) > 0)
}

// Work runs a slow handler.
func (l *serverLane) Work() {
	c, m := l.conn, l.method
	out := m.buffer()
	start := time.Now()
	returned := false
	defer func() {
		if !returned {
			l.respondGoexit()
		}
	}()
	answer, flags, data := l.call(start, out)
	returned = true
	m.record(time.Since(start))
	l.respond(answer, flags, out, data)
	c.out.Flush(true)
}

// respondGoexit responds for a handler that ended its goroutine, in a deferred function.
// The method then counts as slow, so that it does not end another leader soon.
func (l *serverLane) respondGoexit() {
	l.method.avoid()
	l.conn.server.counts.panics.Add(1)
	l.conn.server.counts.errors.Add(1)
	var none []byte // the handler may still use its buffer
	l.respond(wire.Response{Code: uint32(CodeInternal)}, wire.FlagProcessed|wire.FlagSlotLost,
		&none, []byte("the handler ended its goroutine"))
	l.conn.out.Flush(false)
}

// enforceAuth verifies the client's credentials before its requests are served, if that is
// due. Usually the timer of the session was first.
//
// The leader does it as it runs a handler: if it takes long, as with an authentication
// server on another host, a follower reads on. enforceAuth reports whether the caller still
// has the turn.
func (c *serverConn) enforceAuth(now time.Time) (leads bool) {
	if !c.session.Due(now) {
		return true
	}
	number := c.beginRun()
	_ = c.session.Verify(now) // it calls stopNotAdmitted
	leads = c.turn.End(number)
	if leads {
		c.turn.clock = time.Now()
	}
	return leads
}

// methodNamed is methods.named with a cache of the last method. Only the leader calls it.
func (c *serverConn) methodNamed(name []byte) *method {
	if c.method == nil || string(name) != c.method.name {
		c.method = c.server.methods.named(name)
	}
	return c.method
}
