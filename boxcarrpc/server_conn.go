package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/boxcarrpc/session"
)

// The time that an idle connection of a stopping server waits for its client to close it.
const drainGrace = time.Second

const (
	// A frame must be complete after this time.
	frameTimeout = 10 * time.Second
	// A request of several frames must be complete after this time. It is checked every
	// stallCheck.
	requestTimeout = 60 * time.Second
	stallCheck     = 5 * time.Second
)

// A serverConn is a connection of a server. Its leader reads frames and serves them: see
// server_turn.go.
type serverConn struct {
	server      *Server
	conn        net.Conn
	in          conn.Reader
	out         conn.Outbox
	turn        serverTurn
	account     *budget.Account
	share       *clientShare
	maxResponse uint32 // largest response that the client accepts
	otherZone   bool   // the client is in another zone
	peer        *Peer  // its name is known after its HELLO
	client      budget.Client
	method      *method // of the last request, as a cache
	greeted     bool
	replaced    atomic.Bool // by another connection: see errReplaced

	token   string           // of the client, for reauthentication
	session *session.Session // since the server's HELLO was sent; nil before

	partialSince time.Time // when the first part of the buffered frame was read; zero if none
	idleSet      time.Time // when the read deadline for idleness was last set
	checked      time.Time // time of the last checkStalled

	mu struct {
		sync.Mutex
		lanes    []*serverLane   // by lane number; nil where there is no lease
		streams  []*ServerStream // by number; nil where none is open
		running  int             // running handlers of requests and streams, and responses not yet taken
		open     bool            // the server's HELLO has been sent
		draining bool
		stopping bool      // and the connection closes when those in flight have ended
		stopped  refusal   // the reason for stopping
		drainBy  time.Time // when it is closed at the latest; zero while not stopping
		closed   bool
	}
}

func newServerConn(s *Server, nc net.Conn, peer *Peer) *serverConn {
	conn.Tune(nc)
	if s.tls != nil {
		nc = tls.Server(conn.NewTLSBatchConn(nc), s.tls)
	}
	c := &serverConn{server: s, conn: nc, peer: peer}
	c.turn.Init(func() { s.workers.Run(c) })
	c.account = s.budget.Open(peer.Client(), c.cutOff)
	c.in.Init(nc, c.account)
	c.in.BeforeRead = c.beforeRead
	c.out.Init(nc, c.account, s.options.WriteTimeout, func(error) { conn.Close(nc) }) // Close ends the reading
	return c
}

// cutOff disconnects the peer because memory is short and it is the slowest. It uses a
// goroutine, because the caller may hold the lock of an outbox, even of this connection's,
// whose buffer it charges.
func (c *serverConn) cutOff() { go c.disconnect() }

func (c *serverConn) disconnect() {
	c.server.faults.Warn(c.conn.RemoteAddr(), "memory", "connection closed: memory is short and the peer is slow to read or to send", "peer", c.conn.RemoteAddr().String())
	c.out.Close()
	conn.Close(c.conn)
}

// report logs the end of the connection: a fault of the peer as a warning, subject to the
// limit for warnings.
func (c *serverConn) report(err error) {
	if c.replaced.Load() {
		err = errReplaced
	}
	attributes := []any{"peer", c.conn.RemoteAddr().String(), "name", c.peer.Name, "reason", err}
	kind := c.faultOf(err)
	if kind == "" {
		c.server.options.Logger.Debug("connection ended", attributes...)
		return
	}
	c.server.counts.faults.Add(1)
	c.server.faults.Warn(c.conn.RemoteAddr(), kind, "connection ended", attributes...)
}

// faultOf returns the kind of fault that err is, empty for none.
func (c *serverConn) faultOf(err error) (kind string) {
	var timeout net.Error
	switch {
	case errors.Is(err, errNotAdmitted):
		return "unwelcome"
	case errors.Is(err, conn.ErrTLS) && !errors.Is(err, io.EOF):
		return "tls"
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, errProtocol), errors.Is(err, errVersion):
		return "protocol"
	case errors.As(err, &timeout) && timeout.Timeout() && !c.isStopping():
		return "timeout"
	}
	return ""
}

func (c *serverConn) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.stopping
}

// beforeRead sets the deadline of the next read. It waits while the peer does not read its
// responses.
func (c *serverConn) beforeRead(partial bool) error {
	now := time.Now()
	c.endBatch(now)
	if c.holdBack() {
		now = time.Now()
	}
	if now.Sub(c.checked) >= stallCheck {
		c.checked = now
		if err := c.checkStalled(now); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.mu.drainBy.IsZero():
		return c.conn.SetReadDeadline(c.mu.drainBy)
	case partial && c.partialSince.IsZero():
		c.partialSince = now
		c.idleSet = time.Time{}
		return c.conn.SetReadDeadline(now.Add(frameTimeout))
	case partial:
		return nil
	}
	c.partialSince = time.Time{}
	if now.Sub(c.idleSet) > idleTimeout/8 {
		c.idleSet = now
		return c.conn.SetReadDeadline(now.Add(idleTimeout))
	}
	return nil
}

// holdBack waits while too many bytes for the peer are unread. It reports whether it has
// waited.
func (c *serverConn) holdBack() (waited bool) {
	return c.out.WaitBelow(c.unreadLimit(), int(c.account.Share()))
}

// unreadLimit returns the number of unread bytes of small messages at which no more frames
// of the peer are read.
func (c *serverConn) unreadLimit() int {
	if c.account.Tight() {
		return maxUnreadTight
	}
	return maxUnread
}

// checkStalled returns an error if a request takes too long to arrive.
func (c *serverConn) checkStalled(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lane := range c.mu.lanes {
		if lane != nil && lane.state == laneReceiving && now.Sub(lane.began) > requestTimeout {
			return protocolError("request on lane %d has %d of %d bytes after %v", lane.number, len(*lane.request), lane.total, requestTimeout)
		}
	}
	return nil
}

func (c *serverConn) frame(f wire.Frame) error {
	switch f.Type {
	case wire.TypeRequest:
		return c.request(f)
	case wire.TypeData:
		return c.data(f)
	case wire.TypeLease:
		return c.lease(f)
	case wire.TypeRelease:
		return c.release(f)
	case wire.TypeCancel:
		return c.cancel(f)
	case wire.TypePing:
		token, err := f.Ping()
		if err == nil {
			c.shrink()
			c.out.Append(wire.AppendPing(nil, wire.TypePong, token))
		}
		return err
	case wire.TypePong, wire.TypeGoAway:
		return nil
	}
	return c.streamFrame(f)
}

// shrink frees the buffers of a busy time. It is called for frames that idle clients send.
func (c *serverConn) shrink() {
	c.mu.Lock()
	running := c.mu.running
	c.mu.Unlock()
	if running == 0 {
		c.in.Shrink()
		c.out.Shrink()
	}
}

// laneLocked returns the leased lane with this number, or nil.
func (c *serverConn) laneLocked(number uint32) *serverLane {
	if int(number) < len(c.mu.lanes) {
		return c.mu.lanes[number]
	}
	return nil
}

func (c *serverConn) lease(f wire.Frame) error {
	below, err := f.Slot()
	if err != nil {
		return err
	}
	if f.Lane >= uint32(c.server.options.maxLanesPerConn) {
		return protocolError("LEASE on lane %d of at most %d", f.Lane, c.server.options.maxLanesPerConn)
	}
	c.shrink()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.laneLocked(f.Lane) != nil {
		return protocolError("LEASE on lane %d, which is leased", f.Lane)
	}
	slot, ok := c.server.lease(int32(below), c.share)
	if !ok {
		c.out.Append(wire.AppendSlot(nil, wire.TypeDeny, f.Lane, uint32(slot)))
		return nil
	}
	for int(f.Lane) >= len(c.mu.lanes) {
		c.mu.lanes = append(c.mu.lanes, nil)
	}
	c.mu.lanes[f.Lane] = &serverLane{conn: c, number: f.Lane, slot: slot, leased: c.turn.clock}
	c.out.Append(wire.AppendSlot(nil, wire.TypeGrant, f.Lane, uint32(slot)))
	return nil
}

func (c *serverConn) release(f wire.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lane := c.laneLocked(f.Lane)
	if lane == nil || lane.state != laneIdle {
		return protocolError("RELEASE of lane %d, which is not leased and idle", f.Lane)
	}
	c.mu.lanes[f.Lane] = nil
	c.server.reclaim(lane.slot, c.share)
	return nil
}

// end gives back the slots of idle lanes and cancels the requests in handlers; their slots
// are given back when the handlers return.
func (c *serverConn) end() {
	c.out.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	for i, lane := range c.mu.lanes {
		switch {
		case lane == nil:
			continue
		case lane.state == laneRunning:
			lane.ctx.cancel(context.Canceled)
			continue
		case lane.state == laneReceiving:
			lane.dropRequest()
		}
		c.mu.lanes[i] = nil
		c.server.reclaim(lane.slot, c.share)
	}
	c.endStreamsLocked(admitted)
}

// lowestFree returns the lowest free slot, as responses carry it.
func (c *serverConn) lowestFree() uint32 {
	if lowest := c.server.lowest.Load(); lowest != core.NoSlot {
		return uint32(lowest)
	}
	return wire.NoSlot
}

// greet marks the connection as open, since its HELLO has been sent. From here on it is
// informed of changes of the server's state.
func (c *serverConn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.open = true
	draining, stopping := c.server.state()
	switch {
	case stopping:
		c.stopLocked(refusedStopping)
	case draining:
		c.setDrainingLocked(true)
	}
}

// setDraining tells the client that the server is draining, or no longer.
func (c *serverConn) setDraining(draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.open {
		c.setDrainingLocked(draining)
	}
}

func (c *serverConn) setDrainingLocked(draining bool) {
	switch {
	case c.mu.draining == draining:
		return
	case draining:
		c.out.Append(wire.AppendReason(nil, wire.TypeDrain, refusalTable[refusedDraining].message))
	default:
		c.out.Append(wire.AppendReason(nil, wire.TypeUndrain, ""))
	}
	c.mu.draining = draining
	c.out.FlushSoon()
}

// stop tells the client that the server is going away. A client that has not sent HELLO
// gets drainGrace to do so.
func (c *serverConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.open {
		_ = c.conn.SetReadDeadline(time.Now().Add(drainGrace)) // only fails if the connection is closed
		return
	}
	c.stopLocked(refusedStopping)
}

func (c *serverConn) stopLocked(why refusal) {
	if c.mu.stopping {
		return
	}
	c.mu.draining, c.mu.stopping, c.mu.stopped = true, true, why
	c.out.Append(wire.AppendReason(nil, wire.TypeGoAway, refusalTable[why].message))
	c.out.FlushSoon()
	c.expectCloseLocked()
}

// admitLocked admits a request or a stream, or returns the reason for refusing it.
func (c *serverConn) admitLocked(batch bool) refusal {
	switch {
	case c.mu.stopping:
		return c.mu.stopped
	case c.mu.draining:
		return refusedDraining
	}
	return refusal(c.server.gate.Enter(c.turn.clock, c.client, batch))
}

// expectCloseLocked gives the client of an idle connection drainGrace to close it, if the
// server stops, and wakes the reader.
func (c *serverConn) expectCloseLocked() {
	if c.mu.stopping && c.mu.running == 0 && c.mu.drainBy.IsZero() {
		c.mu.drainBy = time.Now().Add(drainGrace)
		_ = c.conn.SetReadDeadline(c.mu.drainBy) // fails on a closed connection only
	}
}

func (c *serverConn) appendSlots(dst []BoardSlot, now time.Time) []BoardSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lane := range c.mu.lanes {
		if lane != nil {
			dst = append(dst, BoardSlot{
				Number: int(lane.slot), Client: c.peer.Name, Zone: c.peer.Zone, Identity: c.peer.Identity.Name, Address: c.peer.Address.String(),
				Age: now.Sub(lane.leased), Requests: lane.requests, Errors: lane.errors, Busy: lane.state != laneIdle,
			})
		}
	}
	return dst
}
