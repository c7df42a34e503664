package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/boxcarrpc/session"
)

const (
	// A frame must be complete after this time.
	frameTimeout = 10 * time.Second
	// A request of several frames must be complete after this time. It is checked every
	// stallCheck.
	requestTimeout = 60 * time.Second
	stallCheck     = 5 * time.Second
)

// errProtocol is a well-formed frame that is not allowed in its context.
var errProtocol = errors.New("protocol error")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

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
	case errors.Is(err, errTLS) && !errors.Is(err, io.EOF):
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

// handshake exchanges HELLOs, before anything else is written.
func (c *serverConn) handshake() error {
	deadline := time.Now().Add(c.server.options.HandshakeTimeout)
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := c.handshakeTLS(); err != nil {
		return err
	}
	c.in.BeforeRead = nil // keep the deadline of the handshake
	f, err := c.in.Next()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if f.Type != wire.TypeHello {
		return protocolError("%v before HELLO", f.Type)
	}
	hello, err := f.Hello()
	if err != nil {
		return err
	}
	if err := c.authenticate(hello); err != nil {
		_, _ = c.conn.Write(wire.AppendReason(nil, wire.TypeGoAway, err.Error())) // the client may also just see the connection end
		return err
	}
	c.otherZone = discovery.OtherZone(c.server.options.Zone, hello.Zone)
	c.maxResponse = min(hello.MaxResponse, MaxResponseBytes)
	_, err = c.conn.Write(wire.AppendHello(nil, wire.Hello{
		Version:       wire.Version,
		OldestVersion: wire.OldestVersion,
		MaxLanes:      uint32(c.server.options.maxLanesPerConn),
		MaxRequest:    uint32(c.server.options.MaxRequestBytes),
		MaxStreams:    uint32(c.server.options.MaxStreams),
		Name:          c.server.options.Name,
		Zone:          c.server.options.Zone,
	}))
	if err != nil {
		return err
	}
	if err := commonVersion(hello); err != nil {
		return err
	}
	c.in.BeforeRead = c.beforeRead
	c.checked, c.greeted = time.Now(), true
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.greet()
	c.openSession()
	return nil
}

// commonVersion returns an error if both sides have no protocol version in common.
func commonVersion(peer wire.Hello) error {
	if min(peer.Version, wire.Version) < max(peer.OldestVersion, wire.OldestVersion) {
		return fmt.Errorf("%w: the peer speaks %d to %d, this side %d to %d",
			errVersion, peer.OldestVersion, peer.Version, wire.OldestVersion, wire.Version)
	}
	return nil
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
