package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/boxcarrpc/subset"
)

// Limits of the protocol, the same for both sides.
const (
	// MaxRequestBytes is the size of the largest request: a document of 16 MiB with its
	// envelope.
	MaxRequestBytes = 17 << 20
	// MaxResponseBytes is the size of the largest response: a batch of documents.
	MaxResponseBytes = budget.MaxMessageBytes
	// MaxMethodBytes is the length of the longest method name.
	MaxMethodBytes = wire.MaxMethodBytes
	// MaxMessageBytes is the length to which the message of an error is cut.
	MaxMessageBytes = 4 << 10
)

// MaxTokenBytes is the size of the largest token.
const MaxTokenBytes = wire.MaxTokenBytes

// Defaults of ServerOptions and PoolOptions.
const (
	DefaultMaxConns         = 16 << 10
	DefaultMaxLanes         = 64 << 10
	DefaultMaxStreams       = 1 << 10 // of a pool
	DefaultServerMaxStreams = 8 << 10
	DefaultClientShare      = 1.0 / 8
	DefaultBufferBytes      = 512 << 20 // of the responses of a pool, and of the Budget of a server
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultWriteTimeout     = 10 * time.Second

	DefaultSize           = 64
	DefaultSubsetSize     = 20
	DefaultLeaveAfter     = 30 * time.Second
	DefaultRetryWait      = 100 * time.Millisecond
	DefaultMaxRetries     = 3
	DefaultRetryRatio     = 0.2
	DefaultLanesPerConn   = 64
	DefaultDialTimeout    = time.Second
	DefaultCallTimeout    = time.Minute
	DefaultSilenceTimeout = time.Second
)

const (
	// maxLanesPerConn is the number of lanes that a server allows on a connection.
	maxLanesPerConn = 1 << 10
	// keepAlive is the time after which a client pings an idle connection. The server then
	// frees the buffers of a busy time.
	keepAlive = 90 * time.Second
	// idleTimeout is the time after which a server closes a connection without a byte
	// from its client.
	idleTimeout = 2 * keepAlive
)

// ServerOptions configures a server. The zero value of each field, and a nil
// *ServerOptions, mean the default.
type ServerOptions struct {
	// MaxConns limits the connections; further ones are closed when they are accepted, or
	// replace one that has not sent its HELLO. A server with more clients raises it. The
	// default is 16,384.
	MaxConns int
	// MaxLanes limits the slots that the server grants, and thereby its requests in flight.
	// A server with more clients raises it. The default is 65,536.
	MaxLanes int
	// MaxRequestBytes limits a request and a message of a stream. Clients learn it and fail
	// larger requests themselves. A server whose requests are small lowers it, to limit the
	// memory that one request can occupy. The default and the maximum is 17 MiB.
	MaxRequestBytes int
	// Admission limits the requests in flight and their rates. A refused request was not
	// processed: the client retries it on a slot of another server, and uses this server last
	// for a moment.
	Admission budget.Admission
	// StreamHandler serves streams. The default refuses them.
	StreamHandler StreamHandler
	// Tools are built-in streams besides MethodBoard and MethodDrain, by method. The client
	// sends one message, and the handler returns the answer. They have the limits of built-in
	// streams: they take no slot, work in every state of the server, also while it drains, and
	// end after 10 s. The message has at most 64 KiB.
	Tools map[string]Handler
	// TLS returns the TLS configuration of a new connection. It is called for each, so that
	// certificates can change: package credentials reads them from files. It must return
	// the same *tls.Config until something changes. The default is plain text, which Serve
	// refuses on addresses that other hosts can reach unless Insecure is set.
	TLS func() (*tls.Config, error)
	// Insecure allows plain text to other hosts.
	Insecure bool
	// Authenticate returns the identity of a client, for handlers (see PeerOf), admission
	// and Authorize. An error refuses the client and is sent to it. token is the token that
	// the client sent, or empty; the peer's Identity is that of its verified certificate,
	// anonymous without a usable name. It is called when a connection starts, and again at
	// least every 10 s until it ends, concurrently for up to 16 connections: a client that is
	// refused then, or has a different identity, receives GOAWAY, and its streams end with
	// CodeUnavailable. So does one whose certificate has expired, or is not of the current
	// ClientCAs. The default is IdentityOfTLS: it accepts clients without a certificate, if TLS
	// does, and refuses certificates without a name.
	Authenticate func(peer *Peer, token string) (Identity, error)
	// Authorize returns an error if the client of ctx may not call a method. It is called
	// for each request and stream, also for built-in methods, inside the interceptors. An
	// error without a code becomes CodePermissionDenied. The default allows everything.
	Authorize func(ctx context.Context, method string) error
	// Operators are the names of identities that may drain the server: see MethodDrain.
	// Without Operators and Authenticate, an anonymous client may drain the server from
	// the server's own host; set one of them if a proxy on that host forwards requests of
	// others. The default is none.
	Operators []string
	// Audit is called after each call of MethodDrain or MethodUndrain, with the client and the
	// error with which it was refused, nil if it was not. The default does nothing.
	Audit func(client *Peer, method string, refused error)
	// Interceptors wrap the handler, the first outermost, and StreamInterceptors wrap the
	// StreamHandler. The default is none.
	Interceptors       []func(Handler) Handler
	StreamInterceptors []func(StreamHandler) StreamHandler
	// MaxStreams limits the streams of all connections together, of batch ones as Admission
	// does. Each may hold 256 KiB that its handler has not received. Further ones are refused
	// as not processed. A server of watches raises it to its number of watchers. The default
	// is 8,192.
	MaxStreams int
	// ClientShare is the fraction of MaxConns, MaxLanes and MaxStreams that one client may
	// use, so that no client uses all of them. A client is identified by its identity, or
	// else by its IP address: see budget.ClientAt. A client may always have 128 connections,
	// 1,024 slots and 128 streams. All connections before their HELLO together may be as
	// many as those of one client; one more replaces the oldest one of the address with the
	// most. The default is an eighth; 1 means no limit.
	ClientShare float64
	// Budget limits the memory of messages: requests that are being received or handled,
	// and responses, messages of streams and control frames that the peers have not read.
	// Servers of other protocols may share it. The large requests of a client that holds an
	// eighth of it are refused. A handler calls budget.Reserve before it makes a large response,
	// and waits there. When the budget is exceeded, the slowest peers are disconnected. The
	// default is a budget of 512 MiB.
	Budget *budget.Budget
	// HandshakeTimeout limits the time from accepting a connection to the HELLO of its
	// client. Raise it for slow networks or an Authenticate that takes long. The default is
	// 5 s.
	HandshakeTimeout time.Duration
	// WriteTimeout limits the time in which a peer reads nothing that the server has sent.
	// Raise it for slow networks. The default is 10 s.
	WriteTimeout time.Duration
	// Zone is the zone that the server is in, such as a data center. Clients learn it when
	// they connect, and before from their source of servers: see discovery.Server.Zone. The
	// default is unknown.
	Zone string
	// Name is the name that clients see. The default is the host name, a slash and the
	// program name.
	Name string
	// Logger logs faults of peers and panics of handlers. The default discards them.
	Logger *slog.Logger

	maxLanesPerConn int // changed by tests
}

// Method has the options of a method.
type Method struct {
	// Idempotent says that the method may be executed more than once. A call is then sent
	// again also when it may have been processed.
	Idempotent bool
	// HedgeAfter is the time after which a call that has no answer is also sent to a second
	// server, if a slot of one is free and the retry budget allows it. The first answer
	// counts. A value well above the usual latency of the method shortens the tail for a
	// few percent more load. The second attempt may be up to 2 ms late. The method must be
	// Idempotent. The default is 0: never.
	HedgeAfter time.Duration
}

// PoolOptions configures a pool. The zero value of each field, and a nil *PoolOptions, mean
// the default.
type PoolOptions struct {
	// Size is the number of slots, and so of concurrent calls. The rule is
	//
	//	peak rate x p99 latency x 1.5
	//
	// 2,000 calls a second of 20 ms need 60. The default is 64.
	Size int
	// SubsetSize is the number of servers that the pool uses, chosen by the numbers of the
	// servers and of the client. The load is even if all clients see the same numbers. If
	// all servers of the subset are dead, or full while the pool lacks slots, the pool borrows
	// as many more, at most twice. The default is 0: all servers, or DefaultSubsetSize if
	// Subset is set.
	SubsetSize int
	// Subset chooses the servers. Set it to use the algorithm of other clients of the same
	// servers. The default is rocksteadier. A pool that the source gives no number uses
	// rendezvous instead, keyed by Name or, without a Name, by a random number.
	Subset subset.Algorithm
	// Zone is the zone that the client is in. The pool uses the servers of the zone first.
	// It keeps a quarter of its slots on servers of other zones, and uses these while the
	// servers of the zone are lost, have no free slot, or report more load by a bound. The
	// subset has SubsetSize servers of the zone and a quarter as many others. A server whose
	// zone is unknown counts as one of the zone. The default is unknown: zones do not matter.
	Zone string
	// LeaveAfter limits the time that slots of servers that left the set are used until
	// others have replaced them; up to a tenth is added at random. Lower it if servers stop
	// soon after they leave. Negative means 0: new connections are made after the old ones
	// are closed. The default is 30 s.
	LeaveAfter time.Duration
	// MaxWait limits the time that a first attempt waits while all slots are busy. Batch
	// programs set it. The default is 0: the call fails at once, as in the article.
	MaxWait time.Duration
	// RetryWait limits the time that a retry waits for a slot, within the deadline. A pool
	// with few slots for its load raises it. The default is 100 ms.
	RetryWait time.Duration
	// MaxRetries limits the attempts after the first; negative means none, for programs
	// that retry themselves. The default is 3.
	MaxRetries int
	// RetryRatio is the long-term share of calls that may be retried or hedged. In addition
	// 10 a second are allowed, and bursts of as many as the pool has slots. Programs that
	// hedge many calls raise it. Negative means 0; a value of at least MaxRetries means no
	// limit. The default is 0.2.
	RetryRatio float64
	// HealthMethod is called to check an untrusted server before calls use it, while the
	// pool has trusted ones: a server that is new, back from quarantine, or ejected for
	// failures. Set it if no call may fail because of a new server. The server is healthy
	// if it answers without an error within SilenceTimeout. For servers without a method
	// for this, use MethodEcho. The default is none: a call is the check.
	HealthMethod string
	// HealthInterval is the time between checks of trusted servers, for pools with few
	// calls. The default is 0: never, since calls check them.
	HealthInterval time.Duration
	// Methods has the options of methods by name. The default is none: a request that may
	// have been processed is never repeated.
	Methods map[string]Method
	// LanesPerConn limits the lanes of one connection. A pool makes more connections by itself
	// while responses are large. Lower it for a client with many processors and few servers: see
	// the package comment; 1 is the form of the article, a connection for each slot. The default
	// is 64.
	LanesPerConn int
	// DialTimeout limits connecting and the handshakes. Raise it for servers at a long
	// distance. The default is 1 s.
	DialTimeout time.Duration
	// CallTimeout is the timeout of a call whose context has no deadline; negative means
	// none, for programs with calls of hours. The default is 1 minute.
	CallTimeout time.Duration
	// SilenceTimeout limits the time without a received byte on a connection with an
	// outstanding answer; then the connection counts as broken. It is pinged, and other
	// servers are used first, after max(50 ms, 4 x the p99 of its answers), at most half of
	// the timeout. Raise it for servers at a long distance. The default is 1 s.
	SilenceTimeout time.Duration
	// MaxStreams limits the streams. Each may hold 256 KiB that was not received from it.
	// Further ones fail with ErrPoolBusy. Programs with more watches raise it. The default
	// is 1,024.
	MaxStreams int
	// BufferBytes limits the memory of all responses that are being received, as their
	// bytes arrive. One server may use half of it, and beyond it one response of any size;
	// responses up to 64 KiB are not counted. A call above the limit fails with
	// CodeResourceExhausted. A client with little memory lowers it. The default is 512 MiB.
	BufferBytes int64
	// TLS returns the TLS configuration of a new connection. It is called for each, so that
	// certificates can change: package credentials reads them from files. Without a
	// ServerName in it, the server must prove to be the host of its address. The default is
	// plain text, which is refused to other hosts unless Insecure is set: see ErrPlainText.
	TLS func() (*tls.Config, error)
	// Insecure allows plain text to other hosts. A token is still not sent in plain text.
	Insecure bool
	// Token returns the token that authenticates the client on a new connection, at most
	// MaxTokenBytes. The default sends none.
	Token func() (string, error)
	// Interceptors wrap every call, the first outermost, and StreamInterceptors wrap the
	// opening of every stream. The default is none.
	Interceptors       []func(Caller) Caller
	StreamInterceptors []func(StreamOpener) StreamOpener
	// Dialer connects to an address, for tunnels and Unix sockets. The default dials TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// Name is the name that servers see. The default is the host name, a slash and the
	// program name.
	Name string
	// Seed fixes the random choices of the pool, for tests. The default is random.
	Seed uint64
	// Logger logs broken connections and unhealthy servers. The default discards them.
	Logger *slog.Logger
}

// withDefaults returns a copy of o with the defaults filled in, and all errors in the
// options.
func (o *ServerOptions) withDefaults() (ServerOptions, error) {
	var r ServerOptions
	if o != nil {
		r = *o
	}
	fill(&r.MaxConns, DefaultMaxConns)
	fill(&r.MaxLanes, DefaultMaxLanes)
	fill(&r.maxLanesPerConn, maxLanesPerConn)
	fill(&r.MaxRequestBytes, MaxRequestBytes)
	var admission error
	r.Admission, admission = r.Admission.Complete()
	fill(&r.MaxStreams, DefaultServerMaxStreams)
	fill(&r.ClientShare, DefaultClientShare)
	if r.Budget == nil {
		r.Budget = budget.New(DefaultBufferBytes)
	}
	fill(&r.HandshakeTimeout, DefaultHandshakeTimeout)
	fill(&r.WriteTimeout, DefaultWriteTimeout)
	fill(&r.Name, defaultName())
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r, errors.Join(
		within("MaxConns", r.MaxConns, 1, 1<<30),
		within("MaxLanes", r.MaxLanes, 1, wire.MaxSlots),
		within("MaxRequestBytes", r.MaxRequestBytes, 1, MaxRequestBytes),
		admission,
		within("MaxStreams", r.MaxStreams, 1, wire.MaxLanes),
		within("ClientShare", r.ClientShare, 0, 1),
		within("HandshakeTimeout", r.HandshakeTimeout, 1, 1<<62),
		within("WriteTimeout", r.WriteTimeout, 1, 1<<62),
		checkZone(r.Zone),
		within("length of Name", len(r.Name), 0, wire.MaxNameBytes),
	)
}

// withDefaults returns a copy of o with the defaults filled in, and all errors in the
// options.
func (o *PoolOptions) withDefaults() (PoolOptions, error) {
	var r PoolOptions
	if o != nil {
		r = *o
	}
	fill(&r.Size, DefaultSize)
	if r.Subset != nil {
		fill(&r.SubsetSize, DefaultSubsetSize)
	}
	fill(&r.LeaveAfter, DefaultLeaveAfter)
	r.LeaveAfter = max(r.LeaveAfter, 0)
	fill(&r.RetryWait, DefaultRetryWait)
	fill(&r.MaxRetries, DefaultMaxRetries)
	fill(&r.RetryRatio, DefaultRetryRatio)
	fill(&r.LanesPerConn, DefaultLanesPerConn)
	fill(&r.MaxStreams, DefaultMaxStreams)
	fill(&r.DialTimeout, DefaultDialTimeout)
	fill(&r.CallTimeout, DefaultCallTimeout)
	fill(&r.SilenceTimeout, DefaultSilenceTimeout)
	fill(&r.BufferBytes, DefaultBufferBytes)
	fill(&r.Name, defaultName())
	r.MaxRetries = max(r.MaxRetries, 0)
	r.RetryRatio = max(r.RetryRatio, 0)
	r.CallTimeout = max(r.CallTimeout, 0)
	if r.Dialer == nil {
		var d net.Dialer
		r.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r, errors.Join(
		within("Size", r.Size, 1, wire.MaxSlots),
		within("SubsetSize", r.SubsetSize, 0, subset.MaxTasks),
		within("LeaveAfter", r.LeaveAfter, 0, math.MaxInt64/2),
		within("MaxWait", r.MaxWait, 0, 1<<62),
		within("RetryWait", r.RetryWait, 0, 1<<62),
		within("MaxRetries", r.MaxRetries, 0, 100),
		checkMethods(r.Methods),
		checkZone(r.Zone),
		within("HealthInterval", r.HealthInterval, 0, 1<<62),
		within("length of HealthMethod", len(r.HealthMethod), 0, MaxMethodBytes),
		within("LanesPerConn", r.LanesPerConn, 1, wire.MaxLanes),
		within("MaxStreams", r.MaxStreams, 1, wire.MaxLanes),
		within("DialTimeout", r.DialTimeout, 1, 1<<62),
		within("SilenceTimeout", r.SilenceTimeout, 10*time.Millisecond, 1<<62),
		within("BufferBytes", r.BufferBytes, wire.MaxPayload, 1<<50),
		within("length of Name", len(r.Name), 0, wire.MaxNameBytes),
	)
}

func checkZone(zone string) error {
	if err := discovery.CheckZone(zone); err != nil {
		return fmt.Errorf("boxcarrpc: %w", err)
	}
	return nil
}

func checkMethods(methods map[string]Method) (err error) {
	for name, m := range methods {
		if m.HedgeAfter < 0 || m.HedgeAfter > 0 && !m.Idempotent {
			err = errors.Join(err, fmt.Errorf("boxcarrpc: HedgeAfter of %s is %v: it must not be negative, and the method must be Idempotent", name, m.HedgeAfter))
		}
	}
	return err
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func within[T int | int64 | float64 | time.Duration](name string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("boxcarrpc: %s is %v, must be within %v and %v", name, value, low, high)
	}
	return nil
}

// defaultName identifies the process on pages and in logs.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := host + "/" + filepath.Base(os.Args[0])
	return wire.Cut(name, wire.MaxNameBytes)
}
