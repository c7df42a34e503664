// Package bounded limits a listener for HTTP or gRPC: its connections, those of one client,
// those that are unauthenticated, and their bytes, which a budget of messages counts.
package bounded

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/session"
)

const (
	// Writes are split into pieces of this size. A peer that does not accept a piece within
	// connStallTimeout, or an eighth less, is disconnected.
	connWriteBytes   = 256 << 10
	connStallTimeout = 10 * time.Second
	// The send buffer of the kernel, which Linux doubles. A larger one would be memory
	// outside of the budget.
	connSendBuffer = 256 << 10
	// The processor time that a new connection costs, approximately.
	connSpent = 100 * time.Microsecond
)

// ClientShare is the fraction of a listener's connections that all unauthenticated ones
// together may have, and that is kept for them. It is also the fraction of the health streams
// that one unauthenticated client may have.
const ClientShare = 8

// ErrTooManyConns is the reason to refuse a request of a connection that cannot be counted as
// one of its client: see Conn.Authenticate.
var ErrTooManyConns = errors.New("too many connections, of all clients or of this one")

// Options configure a Listener.
type Options struct {
	Name     string // in the log
	MaxConns int
	// ClientConns limits the connections of a client, which is known by its identity, or else
	// by its network.
	ClientConns int
	// RequireCredentials says that peers must present a token or a certificate: before they
	// do, all together may have one ClientShare of the connections.
	RequireCredentials bool
	// MaxAge is the age at which peers are asked to connect again: see Conn.Retirement. It
	// varies by a tenth at random. 0: never.
	MaxAge time.Duration
	// CountCalls counts the bytes that are read, until the requests of all calls of the
	// connection have arrived: see BeginCall.
	CountCalls bool
	Budget     *budget.Budget
	Logger     *slog.Logger
}

// A Listener limits the connections of another listener.
type Listener struct {
	net.Listener
	options Options

	mu struct {
		sync.Mutex
		conns           map[string]*Conn // by the peer's address
		clients         map[budget.Client]*clientConns
		unauthenticated core.Unauthenticated[budget.Client, *Conn]
	}
}

// clientConns counts the connections and health streams of a client.
type clientConns struct {
	conns   int
	watches atomic.Int64
}

// New returns a limited listener.
func New(l net.Listener, options Options) *Listener {
	o := &Listener{Listener: l, options: options}
	o.mu.conns, o.mu.clients = make(map[string]*Conn), make(map[budget.Client]*clientConns)
	limit := options.MaxConns
	if options.RequireCredentials {
		limit = o.reserve()
	}
	o.mu.unauthenticated = core.NewUnauthenticated[budget.Client, *Conn](limit)
	return o
}

// A Conn is a connection of a listener.
type Conn struct {
	net.Conn
	listener      *Listener
	account       *budget.Account
	network       budget.Client // of the peer's address
	client        budget.Client // guarded by listener.mu, as the next ones
	ofClient      *clientConns
	present       bool        // counted
	authenticated atomic.Bool // written under listener.mu
	ending        sync.Once
	retirement    time.Time      // see Retirement
	settingUp     bool           // grpc-go has not written its settings yet
	begun         time.Time      // when a batch of frames was read; used by the reader only
	permit        *budget.Permit // for the batch

	mu struct {
		sync.Mutex
		writeBy   time.Time              // as set by SetWriteDeadline; zero: none
		applied   time.Time              // the deadline of the connection below
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
	client := budget.ClientAt(conn.RemoteAddr())
	c.network = client
	o.mu.Lock()
	victim, ok := o.roomLocked(client)
	if ok {
		c.account = o.options.Budget.Open(client, c.cut)
		now := time.Now()
		c.account.Spend(now, now.Add(connSpent))
		if replaced, full := o.mu.unauthenticated.Add(client, c); full {
			victim = replaced
		}
		c.present = true
		o.mu.conns[conn.RemoteAddr().String()] = c
		o.joinLocked(c, client)
	}
	if victim != nil {
		o.removeLocked(victim)
	}
	o.mu.Unlock()
	if victim != nil {
		o.options.Logger.Debug("connection closed: others need its place and its client has not authenticated", "listener", o.options.Name, "peer", victim.RemoteAddr().String())
		_ = victim.Close() // best effort
	}
	if !ok {
		return nil
	}
	return c
}

// reserve is the number of connections that are kept for clients that have not authenticated,
// such as health probes.
func (o *Listener) reserve() int { return max(1, o.options.MaxConns/ClientShare) }

// roomLocked reports whether a connection of a client may be accepted. victim is the
// connection that it replaces, nil if there is none.
func (o *Listener) roomLocked(client budget.Client) (victim *Conn, ok bool) {
	switch has := o.mu.clients[client]; {
	case !o.options.RequireCredentials && has != nil && has.conns >= o.options.ClientConns:
		return o.mu.unauthenticated.EvictOf(client)
	case len(o.mu.conns) >= o.options.MaxConns:
		return o.mu.unauthenticated.Evict()
	}
	return nil, true
}

// joinLocked counts a connection as one of a client.
func (o *Listener) joinLocked(c *Conn, client budget.Client) {
	c.client, c.ofClient = client, o.mu.clients[client]
	if c.ofClient == nil {
		c.ofClient = new(clientConns)
		o.mu.clients[client] = c.ofClient
	}
	c.ofClient.conns++
}

// leaveLocked is the opposite of joinLocked.
func (o *Listener) leaveLocked(c *Conn) {
	if c.ofClient.conns--; c.ofClient.conns == 0 {
		delete(o.mu.clients, c.client)
	}
}

// removeLocked stops to count a connection, if it is counted.
func (o *Listener) removeLocked(c *Conn) {
	if c.present {
		c.present = false
		o.mu.unauthenticated.Remove(c)
		delete(o.mu.conns, c.RemoteAddr().String())
		o.leaveLocked(c)
	}
}

// Find returns the connection from an address, nil if there is none.
func (o *Listener) Find(from net.Addr) *Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.conns[from.String()]
}

// Authenticate records the client of a connection when its credentials, or its first request
// if none are required, have been accepted. name is that of its identity, empty if it has
// none. It returns ErrTooManyConns if the client, or all clients, have too many connections;
// the connection may then be replaced by others.
func (c *Conn) Authenticate(name string) error {
	if c.authenticated.Load() {
		return nil
	}
	o, client := c.listener, c.Client(name)
	o.mu.Lock()
	if c.authenticated.Load() || !c.present {
		o.mu.Unlock()
		return nil
	}
	has := o.mu.clients[client]
	if authenticated := len(o.mu.conns) - o.mu.unauthenticated.Len(); authenticated >= max(1, o.options.MaxConns-o.reserve()) ||
		client != c.client && has != nil && has.conns >= o.options.ClientConns {
		o.mu.Unlock()
		return ErrTooManyConns
	}
	o.mu.unauthenticated.Remove(c)
	o.leaveLocked(c)
	o.joinLocked(c, client)
	c.authenticated.Store(true)
	o.mu.Unlock()
	c.account.Identify(client)
	return nil
}

// Authenticated reports whether the peer has presented credentials, or needs none.
func (c *Conn) Authenticated() bool {
	return c.authenticated.Load() || !c.listener.options.RequireCredentials
}

// Watches counts the open health streams of the client of a connection. The caller updates
// it.
func (c *Conn) Watches() *atomic.Int64 {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return &c.ofClient.watches
}

// Account returns the account of the bytes of a connection.
func (c *Conn) Account() *budget.Account { return c.account }

// Client returns the client of a request by the name of its identity, or if that is empty by
// the address of the connection.
func (c *Conn) Client(name string) budget.Client {
	if name != "" {
		return budget.ClientNamed(name)
	}
	return c.network
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
		c.listener.removeLocked(c)
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
	defer c.mu.Unlock()
	c.mu.writeBy = t
	if t.IsZero() || !t.Before(c.mu.applied) {
		return nil // Write applies it
	}
	c.mu.applied = t
	return c.Conn.SetWriteDeadline(t)
}

// limitWrite limits the next write. A deadline that leaves most of connStallTimeout stays,
// because changing one costs as much as a tenth of a small request.
func (c *Conn) limitWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	by := now.Add(connStallTimeout)
	if !c.mu.writeBy.IsZero() && c.mu.writeBy.Before(by) {
		by = c.mu.writeBy
	}
	if c.mu.applied.After(now.Add(connStallTimeout-connStallTimeout/8)) && !c.mu.applied.After(by) {
		return nil
	}
	c.mu.applied = by
	return c.Conn.SetWriteDeadline(by)
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
		if err = c.limitWrite(); err != nil {
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
