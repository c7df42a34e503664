// Package bounded limits a listener for HTTP or gRPC: its connections, those of one client,
// those that are unauthenticated, and their bytes, which a budget of messages counts.
package bounded

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
	"docstore/boxcarrpc/session"
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
)

// ClientShare is the fraction of a listener's connections that one client may have, and
// that all unauthenticated connections together may have.
const ClientShare = 8

// Options configure a Listener.
type Options struct {
	Name     string // in the log
	MaxConns int
	// RequireCredentials says that peers must present a token or a certificate:
	// unauthenticated connections are limited separately.
	RequireCredentials bool
	// MaxAge is the age at which peers are asked to connect again: see Conn.Retirement. It
	// varies by a tenth at random. 0: never.
	MaxAge time.Duration
	// CountCalls counts the bytes that are read, until the requests of all calls of the
	// connection have arrived: see BeginCall.
	CountCalls bool
	Budget     *boxcarrpc.Budget
	Logger     *slog.Logger
}

// A Listener limits the connections of another listener.
type Listener struct {
	net.Listener
	options Options

	mu struct {
		sync.Mutex
		conns           map[string]*Conn // by the peer's address
		clients         map[netip.Addr]*clientConns
		unauthenticated int // unauthenticated connections
	}
}

// clientConns counts the connections and health streams of a client.
type clientConns struct {
	conns           int
	unauthenticated []*Conn // in the order of acceptance, where authentication is on
	watches         atomic.Int64
}

// New returns a limited listener.
func New(l net.Listener, options Options) *Listener {
	o := &Listener{Listener: l, options: options}
	o.mu.conns, o.mu.clients = make(map[string]*Conn), make(map[netip.Addr]*clientConns)
	return o
}

// A Conn is a connection of a listener.
type Conn struct {
	net.Conn
	listener      *Listener
	account       *boxcarrpc.Account
	client        netip.Addr
	ofClient      *clientConns
	present       bool // counted; guarded by listener.mu
	authenticated bool // guarded by listener.mu
	ending        sync.Once
	retirement    time.Time         // see Retirement
	settingUp     bool              // grpc-go has not written its settings yet
	begun         time.Time         // when a batch of frames was read; used by the reader only
	permit        *boxcarrpc.Permit // for the batch

	mu struct {
		sync.Mutex
		writeBy   time.Time              // as set by SetWriteDeadline; zero: none
		receiving int                    // gRPC calls that await their request
		received  int64                  // bytes read since receiving was last 0
		queued    map[*Response]struct{} // large gRPC responses that wait to be sent
		session   *session.Session       // of the certificate; nil before Verify
		closed    bool
	}
}

// Accept returns the next connection that is within the limits.
func (o *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := o.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := o.admit(conn); c != nil {
			return c, nil
		}
		o.options.Logger.Debug("connection refused: too many connections", "listener", o.options.Name, "peer", conn.RemoteAddr().String())
		_ = conn.Close() // best effort
	}
}

// admit accepts a connection, possibly in place of an unauthenticated one. It returns nil
// if there are too many.
func (o *Listener) admit(conn net.Conn) *Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(connSendBuffer) // on error the kernel's limit applies
	}
	c := &Conn{Conn: conn, listener: o, settingUp: o.options.CountCalls}
	c.mu.queued = make(map[*Response]struct{})
	if o.options.MaxAge > 0 {
		c.retirement = time.Now().Add(jitter(o.options.MaxAge))
	}
	if address, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		c.client = address.Addr().Unmap()
	}
	o.mu.Lock()
	victim, ok := o.roomLocked(c.client)
	if ok {
		c.present = true
		if c.ofClient = o.mu.clients[c.client]; c.ofClient == nil {
			c.ofClient = new(clientConns)
		}
		c.account = o.options.Budget.Open(&boxcarrpc.Peer{Address: conn.RemoteAddr()}, c.cut)
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
func (o *Listener) countLocked(c *Conn, n int) {
	client := c.ofClient
	o.mu.clients[c.client] = client
	client.conns += n
	if o.options.RequireCredentials && !c.authenticated {
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
func (o *Listener) roomLocked(client netip.Addr) (victim *Conn, ok bool) {
	share := max(1, o.options.MaxConns/ClientShare)
	has := o.mu.clients[client]
	ofClient := has != nil && has.conns >= share
	if !ofClient && len(o.mu.conns) < o.options.MaxConns && o.mu.unauthenticated < share {
		return nil, true
	}
	if ofClient {
		return has.oldest()
	}
	// Clients are fewer than connections: a flood that is refused must be cheap.
	var most *clientConns
	for _, c := range o.mu.clients {
		if most == nil || len(c.unauthenticated) > len(most.unauthenticated) {
			most = c
		}
	}
	return most.oldest()
}

// oldest returns the oldest unauthenticated connection of a client.
func (c *clientConns) oldest() (victim *Conn, ok bool) {
	if len(c.unauthenticated) == 0 {
		return nil, false
	}
	return c.unauthenticated[0], true
}

// Find returns the connection from an address, nil if there is none.
func (o *Listener) Find(from net.Addr) *Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.conns[from.String()]
}

// Authenticate records the identity of the peer.
func (c *Conn) Authenticate(peer *boxcarrpc.Peer) {
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

// Authenticated reports whether the peer has presented credentials, or needs none.
func (c *Conn) Authenticated() bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.authenticated || !c.listener.options.RequireCredentials
}

// Watches counts the open health streams of the client of a connection. The caller updates
// it.
func (c *Conn) Watches() *atomic.Int64 { return &c.ofClient.watches }

// NewReservation returns the reservation of memory of a request, as
// boxcarrpc.Account.NewReservation.
func (c *Conn) NewReservation(ctx context.Context) (context.Context, *boxcarrpc.Reservation) {
	return c.account.NewReservation(ctx)
}

// cut disconnects a slow peer because memory is short.
func (c *Conn) cut() {
	c.listener.options.Logger.Warn("connection closed: memory is short and the peer reads or writes slowly", "listener", c.listener.options.Name, "peer", c.RemoteAddr().String())
	go func() { _ = c.Close() }() // do not block the budget
}

// Close closes the connection and its account.
func (c *Conn) Close() error {
	c.ending.Do(func() {
		c.listener.mu.Lock()
		if c.present {
			c.listener.countLocked(c, -1)
		}
		c.listener.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.closed = true
		if c.mu.session != nil {
			c.mu.session.Close()
		}
		for r := range c.mu.queued {
			r.releaseLocked()
		}
		c.account.Release(c.mu.received)
		c.mu.received = 0
		c.account.Close()
	})
	return c.Conn.Close()
}

// SetDeadline limits a write in addition to connStallTimeout.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetWriteDeadline limits a write in addition to connStallTimeout.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.mu.writeBy = t
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// Write writes in pieces, so that connStallTimeout applies to progress and not to the
// whole.
func (c *Conn) Write(b []byte) (written int, err error) {
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
		written += n
	}
	return written, err
}

// Below returns the Conn below a connection, which may be one of TLS; nil if there is none.
func Below(conn net.Conn) *Conn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*Conn)
	return c
}

// contextKey is the context key of the *Conn.
type contextKey struct{}

// WithConn returns a context for the requests of a connection.
func WithConn(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// ConnOf returns the connection of a request, nil if it is unknown.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(contextKey{}).(*Conn)
	return c
}
