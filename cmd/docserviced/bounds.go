package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"docstore/boxcarrpc"
)

const (
	// A connection that is written to in pieces of this size makes progress with each: a
	// peer that takes less in connStallTimeout is disconnected.
	connWriteBytes   = 256 << 10
	connStallTimeout = 10 * time.Second
	// The kernel holds this much of what a peer has not yet taken, twice on Linux. More
	// would be memory outside of the budget.
	connSendBuffer = 256 << 10
	// Of its connections a listener gives this share to one client, and to all connections
	// without proof of the peer's identity.
	clientShare = 8
)

// A boundedListener is a listener of HTTP or gRPC with bounds: of connections, of those of one
// client, of those without proof, and of bytes, which the budget of messages counts.
type boundedListener struct {
	net.Listener
	budget *boxcarrpc.Budget
	log    *slog.Logger
	name   string
	limit  int  // of connections
	proof  bool // peers must show a token or a certificate
	grpc   bool // the bytes of calls are counted here: see grpc_bytes.go

	mu struct {
		sync.Mutex
		conns    map[string]*boundedConn // by the peer's address
		clients  map[netip.Addr]*boundedClient
		unproved int // connections without proof
		accepted uint64
	}
}

// A boundedClient counts the connections of a client.
type boundedClient struct{ conns, unproved int }

// newBoundedListener bounds a listener; limit is of its connections.
func (d *daemon) newBoundedListener(l net.Listener, name string, limit int) *boundedListener {
	o := &boundedListener{Listener: l, name: name, limit: limit, budget: d.messages, log: d.env.Log}
	o.mu.conns, o.mu.clients = make(map[string]*boundedConn), make(map[netip.Addr]*boundedClient)
	return o
}

// A boundedConn is a connection of a listener.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	account  *boxcarrpc.Account
	client   netip.Addr
	number   uint64 // in the order of acceptance
	present  bool   // counted; guarded by listener.mu
	proved   bool   // the peer has shown one; guarded by listener.mu
	ending   sync.Once

	mu struct {
		sync.Mutex
		writeBy   time.Time // as set by the user; zero for none
		receiving int       // gRPC calls whose request has not come
		received  int64     // bytes since there were none
		queued    int64     // bytes of gRPC answers that were not yet written
	}
}

// Accept returns the next connection that is within the bounds.
func (o *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := o.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := o.admit(conn); c != nil {
			return c, nil
		}
		o.log.Debug("connection refused: there are too many", "listener", o.name, "peer", conn.RemoteAddr().String())
		_ = conn.Close() // an error changes nothing
	}
}

// admit accepts a connection, which may replace one without proof. It returns nil if there
// are too many.
func (o *boundedListener) admit(conn net.Conn) *boundedConn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(connSendBuffer) // else the kernel's own bound holds
	}
	c := &boundedConn{Conn: conn, listener: o}
	if address, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		c.client = address.Addr().Unmap()
	}
	o.mu.Lock()
	victim, ok := o.roomLocked(c.client)
	if ok {
		o.mu.accepted++
		c.number, c.present = o.mu.accepted, true
		c.account = o.budget.Open(&boxcarrpc.Peer{Address: conn.RemoteAddr()}, c.cut)
		o.countLocked(c, 1)
		if victim != nil {
			o.countLocked(victim, -1)
		}
	}
	o.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // an error changes nothing
	}
	if !ok {
		return nil
	}
	return c
}

// countLocked counts a connection, or one less.
func (o *boundedListener) countLocked(c *boundedConn, n int) {
	client := o.mu.clients[c.client]
	if client == nil {
		client = new(boundedClient)
		o.mu.clients[c.client] = client
	}
	client.conns += n
	if o.proof && !c.proved {
		client.unproved += n
		o.mu.unproved += n
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

// roomLocked reports whether there is room for a connection of a client. victim is the
// connection that it replaces: the oldest without proof, of the client with most of them.
func (o *boundedListener) roomLocked(client netip.Addr) (victim *boundedConn, ok bool) {
	share := max(1, o.limit/clientShare)
	has := o.mu.clients[client]
	ofClient := has != nil && has.conns >= share
	if !ofClient && len(o.mu.conns) < o.limit && o.mu.unproved < share {
		return nil, true
	}
	most := 0
	for _, c := range o.mu.conns {
		unproved := o.mu.clients[c.client].unproved
		switch {
		case !o.proof || c.proved || ofClient && c.client != client || unproved < most:
		case unproved > most || c.number < victim.number:
			victim, most = c, unproved
		}
	}
	return victim, victim != nil
}

// find returns the connection from an address; nil if there is none.
func (o *boundedListener) find(from net.Addr) *boundedConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.conns[from.String()]
}

// prove notes the identity of the peer.
func (c *boundedConn) prove(peer *boxcarrpc.Peer) {
	o := c.listener
	o.mu.Lock()
	known := c.proved
	if !known && c.present {
		o.countLocked(c, -1)
		c.proved, c.present = true, true
		o.countLocked(c, 1)
	}
	o.mu.Unlock()
	if !known {
		c.account.Identify(peer)
	}
}

// cut disconnects the peer, because memory is short and it is slow.
func (c *boundedConn) cut() {
	c.listener.log.Warn("connection ended: memory is short and the peer is slow to take or to send its bytes", "listener", c.listener.name, "peer", c.RemoteAddr().String())
	go func() { _ = c.Close() }() // the budget does not wait for it
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

// SetDeadline and SetWriteDeadline bound a write besides connStallTimeout.
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

// Write writes piece by piece, so that its deadline is about progress.
func (c *boundedConn) Write(b []byte) (written int, err error) {
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

// boundedConnOf finds the listener's connection below TLS.
func boundedConnOf(conn net.Conn) *boundedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*boundedConn)
	return c
}

// connKey is the key of a context under which it has its *boundedConn.
type connKey struct{}

func withConn(ctx context.Context, c *boundedConn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *boundedConn {
	c, _ := ctx.Value(connKey{}).(*boundedConn)
	return c
}
