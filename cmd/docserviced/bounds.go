package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
)

const (
	// Writes are split into pieces of this size. A peer that does not accept a piece within
	// connStallTimeout is disconnected.
	connWriteBytes   = 256 << 10
	connStallTimeout = 10 * time.Second
	// The send buffer of the kernel, which Linux doubles. A larger one would be memory
	// outside of the budget.
	connSendBuffer = 256 << 10
	// The processor time that a new connection costs, approximately.
	connSpent = 100 * time.Microsecond
	// One client may have this fraction of a listener's connections, and so may all
	// unauthenticated connections together.
	clientShare = 8
)

// A boundedListener is a listener for HTTP or gRPC that limits its connections, those of
// one client, those that are unauthenticated, and their bytes, which the budget of messages
// counts.
type boundedListener struct {
	net.Listener
	budget      *boxcarrpc.Budget
	log         *slog.Logger
	name        string
	limit       int  // of connections
	requireAuth bool // peers must present a token or a certificate
	grpc        bool // the bytes of calls are counted here: see grpc_bytes.go

	mu struct {
		sync.Mutex
		conns           map[string]*boundedConn // by the peer's address
		clients         map[netip.Addr]*boundedClient
		unauthenticated int // unauthenticated connections
	}
}

// A boundedClient counts the connections and health streams of a client.
type boundedClient struct {
	conns           int
	unauthenticated []*boundedConn // in the order of acceptance, where authentication is on
	watches         atomic.Int64
}

// newBoundedListener limits a listener to limit connections.
func (d *daemon) newBoundedListener(l net.Listener, name string, limit int) *boundedListener {
	o := &boundedListener{Listener: l, name: name, limit: limit, budget: d.messages, log: d.env.Log}
	o.mu.conns, o.mu.clients = make(map[string]*boundedConn), make(map[netip.Addr]*boundedClient)
	return o
}

// A boundedConn is a connection of a listener.
type boundedConn struct {
	net.Conn
	listener      *boundedListener
	account       *boxcarrpc.Account
	client        netip.Addr
	ofClient      *boundedClient
	present       bool // counted; guarded by listener.mu
	authenticated bool // guarded by listener.mu
	ending        sync.Once
	settingUp     bool              // grpc-go has not written its settings yet
	begun         time.Time         // when a batch of frames was read; used by the reader only
	permit        *boxcarrpc.Permit // for the batch

	mu struct {
		sync.Mutex
		writeBy   time.Time // as set by SetWriteDeadline; zero: none
		receiving int       // gRPC calls that await their request
		received  int64     // bytes read since receiving was last 0
		queued    int64     // bytes of gRPC responses not written yet
	}
}

// Accept returns the next connection that is within the limits.
func (o *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := o.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := o.admit(conn); c != nil {
			return c, nil
		}
		o.log.Debug("connection refused: too many connections", "listener", o.name, "peer", conn.RemoteAddr().String())
		_ = conn.Close() // best effort
	}
}

// admit accepts a connection, possibly in place of an unauthenticated one. It returns nil
// if there are too many.
func (o *boundedListener) admit(conn net.Conn) *boundedConn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(connSendBuffer) // on error the kernel's limit applies
	}
	c := &boundedConn{Conn: conn, listener: o, settingUp: o.grpc}
	if address, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		c.client = address.Addr().Unmap()
	}
	o.mu.Lock()
	victim, ok := o.roomLocked(c.client)
	if ok {
		c.present = true
		if c.ofClient = o.mu.clients[c.client]; c.ofClient == nil {
			c.ofClient = new(boundedClient)
		}
		c.account = o.budget.Open(&boxcarrpc.Peer{Address: conn.RemoteAddr()}, c.cut)
		now := time.Now()
		c.account.Spend(now, now.Add(connSpent))
		o.countLocked(c, 1)
		if victim != nil {
			o.countLocked(victim, -1)
		}
	}
	o.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // best effort
	}
	if !ok {
		return nil
	}
	return c
}

// countLocked adds n, 1 or -1, to the counts of a connection.
func (o *boundedListener) countLocked(c *boundedConn, n int) {
	client := c.ofClient
	o.mu.clients[c.client] = client
	client.conns += n
	if o.requireAuth && !c.authenticated {
		if n > 0 {
			client.unauthenticated = append(client.unauthenticated, c)
		} else {
			i := slices.Index(client.unauthenticated, c)
			client.unauthenticated = slices.Delete(client.unauthenticated, i, i+1)
		}
		o.mu.unauthenticated += n
	}
	if address := c.RemoteAddr().String(); n > 0 {
		o.mu.conns[address] = c
	} else {
		delete(o.mu.conns, address)
		c.present = false
	}
	if client.conns == 0 {
		delete(o.mu.clients, c.client)
	}
}

// roomLocked reports whether a connection of a client may be accepted. victim is the
// connection that it replaces, if any: the oldest unauthenticated one of the client with
// most of them.
func (o *boundedListener) roomLocked(client netip.Addr) (victim *boundedConn, ok bool) {
	share := max(1, o.limit/clientShare)
	has := o.mu.clients[client]
	ofClient := has != nil && has.conns >= share
	if !ofClient && len(o.mu.conns) < o.limit && o.mu.unauthenticated < share {
		return nil, true
	}
	if ofClient {
		return has.oldest()
	}
	// Clients are fewer than connections: a flood that is refused must be cheap.
	var most *boundedClient
	for _, c := range o.mu.clients {
		if most == nil || len(c.unauthenticated) > len(most.unauthenticated) {
			most = c
		}
	}
	return most.oldest()
}

// oldest returns the oldest unauthenticated connection of a client.
func (c *boundedClient) oldest() (victim *boundedConn, ok bool) {
	if len(c.unauthenticated) == 0 {
		return nil, false
	}
	return c.unauthenticated[0], true
}

// find returns the connection from an address, nil if there is none.
func (o *boundedListener) find(from net.Addr) *boundedConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.conns[from.String()]
}

// markAuthenticated records the identity of the peer.
func (c *boundedConn) markAuthenticated(peer *boxcarrpc.Peer) {
	o := c.listener
	o.mu.Lock()
	known := c.authenticated
	if !known && c.present {
		o.countLocked(c, -1)
		c.authenticated, c.present = true, true
		o.countLocked(c, 1)
	}
	o.mu.Unlock()
	if !known {
		c.account.Identify(peer)
	}
}

// cut disconnects a slow peer because memory is short.
func (c *boundedConn) cut() {
	c.listener.log.Warn("connection closed: memory is short and the peer reads or writes slowly", "listener", c.listener.name, "peer", c.RemoteAddr().String())
	go func() { _ = c.Close() }() // do not block the budget
}

// Close closes the connection and its account.
func (c *boundedConn) Close() error {
	c.ending.Do(func() {
		c.listener.mu.Lock()
		if c.present {
			c.listener.countLocked(c, -1)
		}
		c.listener.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.account.Release(c.mu.received + c.mu.queued)
		c.mu.received, c.mu.queued = 0, 0
		c.account.Close()
	})
	return c.Conn.Close()
}

// SetDeadline and SetWriteDeadline limit a write in addition to connStallTimeout.
func (c *boundedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *boundedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.mu.writeBy = t
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// Write writes in pieces, so that connStallTimeout applies to progress and not to the
// whole.
func (c *boundedConn) Write(b []byte) (written int, err error) {
	if c.settingUp {
		c.settingUp = false
		c.startBatch() // new connections of one client must not delay the others
	}
	for written < len(b) && err == nil {
		piece := b[written:min(len(b), written+connWriteBytes)]
		c.mu.Lock()
		by := c.mu.writeBy
		c.mu.Unlock()
		if patience := time.Now().Add(connStallTimeout); by.IsZero() || patience.Before(by) {
			by = patience
		}
		if err = c.Conn.SetWriteDeadline(by); err != nil {
			break
		}
		var n int
		c.account.Await(len(piece))
		n, err = c.Conn.Write(piece)
		c.account.Moved(len(piece))
		c.sent(int64(n))
		written += n
	}
	return written, err
}

// boundedConnOf returns the boundedConn below a TLS connection.
func boundedConnOf(conn net.Conn) *boundedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*boundedConn)
	return c
}

// connKey is the context key of the *boundedConn.
type connKey struct{}

func withConn(ctx context.Context, c *boundedConn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *boundedConn {
	c, _ := ctx.Value(connKey{}).(*boundedConn)
	return c
}
