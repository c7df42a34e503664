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

	"docstore/boxcarrpc/internal/wire"
	"docstore/boxcarrpc/subset"
)

// Limits of the protocol, the same on both sides.
const (
	// MaxRequestBytes is the largest request: a document of 16 MiB and what goes
	// with it.
	MaxRequestBytes = 17 << 20
	// MaxResponseBytes is the largest response: a batch of documents.
	MaxResponseBytes = 32 << 20
	// MaxMethodBytes is the longest method name.
	MaxMethodBytes = wire.MaxMethodBytes
	// MaxMessageBytes is how much of an error's message is sent.
	MaxMessageBytes = 4 << 10
)

// Defaults of ServerOptions and PoolOptions.
const (
	DefaultMaxConns         = 16 << 10
	DefaultMaxLanes         = 64 << 10
	DefaultMaxLanesPerConn  = 1 << 10
	DefaultMaxStreams       = 1 << 10 // of a pool
	DefaultServerMaxStreams = 8 << 10
	DefaultClientShare      = 1.0 / 8
	DefaultBufferBytes      = 512 << 20
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultIdleTimeout      = 180 * time.Second
	DefaultWriteTimeout     = 10 * time.Second

	DefaultSize           = 64
	DefaultSubsetSize     = 20
	DefaultLeaveAfter     = 30 * time.Second
	DefaultRetryWait      = 100 * time.Millisecond
	DefaultMaxRetries     = 3
	DefaultLanesPerConn   = 64
	DefaultDialTimeout    = time.Second
	DefaultCallTimeout    = time.Minute
	DefaultSilenceTimeout = time.Second
	DefaultKeepAlive      = 90 * time.Second
)

// ServerOptions are a server's limits. The zero value of each field, and a nil
// *ServerOptions, mean the default.
type ServerOptions struct {
	// MaxConns bounds the connections; one more is closed when it is accepted.
	// The default is 16,384.
	MaxConns int
	// MaxLanes bounds the slots that the server gives out, and with them its
	// requests in flight. The default is 65,536.
	MaxLanes int
	// MaxLanesPerConn bounds the lanes of one connection. The default is 1,024.
	MaxLanesPerConn int
	// MaxRequestBytes bounds a request, and a message of a stream; clients are told
	// and send none that is longer. The default, and the most, is 17 MiB.
	MaxRequestBytes int
	// Admission bounds requests in flight and their rates.
	Admission Admission
	// StreamHandler serves streams. The default answers that there are none.
	StreamHandler StreamHandler
	// TLS is asked for the configuration of each connection's TLS, so that
	// certificates can change: package credentials reads them from files. It must
	// return the same *tls.Config until something changes. The default is plain text,
	// which is refused on addresses that other hosts reach unless Insecure asks for it.
	TLS func() (*tls.Config, error)
	// Insecure lets the server serve plain text to other hosts.
	Insecure bool
	// Authenticate says who a client is, for handlers (see PeerOf), admission and
	// Authorize, or by an error that it is not let in, which is told to it. token is
	// what it shows, empty if nothing; the peer's Identity is the name in its verified
	// certificate. It is asked when a connection begins and again every 10 s while that
	// brings something: a client that is somebody else then, or not let in any more, is
	// told to go away. The default goes by the certificate, and lets everybody in.
	Authenticate func(peer *Peer, token string) (identity string, err error)
	// Authorize says by an error that the client of ctx may not call a method. It is
	// asked for each request and stream, those of tools among them, within the
	// interceptors. An error without a code is CodePermissionDenied. The default allows
	// everything.
	Authorize func(ctx context.Context, method string) error
	// Operators are the identities that may drain the server: see MethodDrain. Without
	// Operators and Authenticate a client without an identity may drain it from the
	// server's own host; set either where a proxy on that host forwards for others. The
	// default is none.
	Operators []string
	// Interceptors are around the handler, the first outermost, and
	// StreamInterceptors around the StreamHandler. The default is none.
	Interceptors       []func(Handler) Handler
	StreamInterceptors []func(StreamHandler) StreamHandler
	// Prefetch has a function for each method whose handler mostly waits for memory. It is
	// told of requests that have come in together on a connection, at most 16 of at most
	// 4 KiB each, before the handler gets them one by one, and may have fetched what they
	// need, so that the waits of all are one. Nothing else comes of it: the requests are
	// taken, refused, cancelled and answered as if it were not there. It is not called
	// for one that arrives alone, nor on a connection whose last request failed, nor for
	// a method that Authorize forbids the client, which is asked once for all of them. What it is given is
	// valid until it returns, and it may run several times at once. It must not block: if
	// it runs on, as for a page that is not in memory, the connection is served beside it,
	// and the method counts as slow, of which it is not told for a while. The default is
	// none.
	Prefetch map[string]func(requests [][]byte)
	// MaxStreams bounds the streams of all connections together; each may hold
	// 256 KiB that its handler has not received. One more is refused as not
	// processed. The default is 8,192.
	MaxStreams int
	// ClientShare is the share of MaxConns, MaxLanes and MaxStreams that one client may
	// have, so that no client takes all of them. A client is known by its identity, or
	// else by its IP address as in Admission. A client may always have 128 connections,
	// 1,024 slots and 128 streams. The default is an eighth; 1 is no bound.
	ClientShare float64
	// Budget bounds the memory of messages: requests that are being received or
	// handled, and answers, messages of streams and control frames that the peers have
	// not yet taken. It may be shared with servers of other protocols. A client that
	// holds an eighth of it sends no more large requests. A handler calls Reserve before
	// it makes a large answer, and waits there. When the budget is exceeded, the slowest
	// peers are disconnected. The default is a budget of BufferBytes.
	Budget *Budget
	// BufferBytes is the size of the Budget that the server makes if none is given. The
	// default is 512 MiB.
	BufferBytes int64
	// HandshakeTimeout is how long a new connection may take to say hello. The
	// default is 5 s.
	HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection may be without a byte from its peer,
	// which a client prevents by keep-alives. The default is 3 minutes.
	IdleTimeout time.Duration
	// WriteTimeout is how long a peer may leave the server's bytes unread. The
	// default is 10 s.
	WriteTimeout time.Duration
	// Name is what the server calls itself to its clients. The default is the
	// host's name, a slash and the program's.
	Name string
	// Logger gets what an operator should know: connections that ended for a
	// fault, panics. The default discards it.
	Logger *slog.Logger
}

// A Method is what a pool knows of a method.
type Method struct {
	// Idempotent says that doing it twice is as good as once, so that a call
	// may be sent again when it is not known what became of it.
	Idempotent bool
	// HedgeAfter is how long a call may take before it is sent to a second server,
	// too, if a slot of one is free and the retry budget allows it. The first
	// answer counts. Well above the method's usual times it shortens the worst, for
	// a few percent more load; the method must be Idempotent. The default is 0:
	// never.
	HedgeAfter time.Duration
}

// PoolOptions shape a pool. The zero value of each field, and a nil
// *PoolOptions, mean the default.
type PoolOptions struct {
	// Size is the number of slots, and so of calls at once. The rule is
	//
	//	peak rate x p99 latency x 1.5
	//
	// 2,000 calls a second of 20 ms need 60. The default is 64.
	Size int
	// SubsetSize is how many servers the pool uses of those that the source tells
	// of, by their numbers and the client's own; where these differ between clients
	// the load does, too. If they are all dead, it borrows as many more, twice at
	// most. The default is 0: all servers, or DefaultSubsetSize if Subset is given.
	SubsetSize int
	// Subset chooses them. The default is rocksteadier. A pool that is told no
	// number of its own takes rendezvous instead, with a number made of Name or, if
	// that is not given, at random.
	Subset subset.Algorithm
	// LeaveAfter is how long slots of servers that left the set are used at most,
	// and up to a tenth more, if no others have replaced them before. Negative means
	// not at all: then new connections come after the old ones are gone. The default
	// is 30 s.
	LeaveAfter time.Duration
	// MaxWait is how long a first attempt may wait while all slots are busy. The
	// default is 0: it is refused at once, as in the article.
	MaxWait time.Duration
	// RetryWait is how long a further attempt may wait for a slot, never past
	// the deadline. The default is 100 ms.
	RetryWait time.Duration
	// MaxRetries bounds the attempts after the first; negative means none. The
	// default is 3.
	MaxRetries int
	// RetryRatio is the share of calls that may be attempted again in the long run,
	// when servers refuse, break or are slow; hedges count, too. Besides it are 10 a
	// second, and as many at once as the pool has slots. Negative means no share;
	// at MaxRetries it is no bound. The default is 0.2.
	RetryRatio float64
	// HealthMethod is asked of a server before calls go there, where there are
	// others, if it is not trusted: new, back from quarantine, or back from being left
	// out because it failed. The server is well if it answers without an error
	// within SilenceTimeout; MethodEcho does for one that has nothing better. The
	// default is none: a call finds out.
	HealthMethod string
	// HealthInterval is how often servers that are trusted are asked, too. The
	// default is 0: never, since their answers to calls tell.
	HealthInterval time.Duration
	// Methods tells which methods may be sent again. The default is none: a
	// request that may have been processed is never repeated.
	Methods map[string]Method
	// LanesPerConn bounds the lanes on one connection; 1 is the classic form,
	// a connection for each slot. The default is 64.
	LanesPerConn int
	// DialTimeout bounds connecting and the handshake. The default is 1 s.
	DialTimeout time.Duration
	// CallTimeout is the deadline of a call whose context has none; negative
	// means no deadline. The default is 1 minute.
	CallTimeout time.Duration
	// SilenceTimeout is how long a connection with something outstanding may
	// stay without a byte before it counts as broken. It is asked for a sign of
	// life, and others are used first, after max(50 ms, 4 x the p99 of its
	// answers), at most half of the timeout. The default is 1 s.
	SilenceTimeout time.Duration
	// KeepAlive is how often an idle connection is asked for a sign of life. It
	// must be well under the servers' IdleTimeout. The default is 90 s: what an idle
	// client of one server asks for, a better slot, comes before, so that the server is
	// not woken for both.
	KeepAlive time.Duration
	// MaxStreams bounds the streams; each may hold 256 KiB that was not received
	// from it. One more fails with ErrPoolBusy. The default is 1,024.
	MaxStreams int
	// BufferBytes bounds the memory of responses that are being received, of all calls
	// together, as their bytes arrive. A server may hold half of it, besides one response
	// of any size; responses up to 64 KiB are not counted. A call above it fails with
	// CodeResourceExhausted. The default is 512 MiB.
	BufferBytes int64
	// TLS is asked for the configuration of each new connection's TLS, so that
	// certificates can change: package credentials reads them from files. Without a
	// ServerName in it the server must prove to be the host of its address. The default
	// is plain text, which is refused to other hosts unless Insecure asks for it: see
	// ErrPlainText.
	TLS func() (*tls.Config, error)
	// Insecure lets the pool speak plain text to other hosts. A token is not sent so.
	Insecure bool
	// Token returns what the pool shows a server when a connection begins, at most
	// MaxTokenBytes, to prove who it is. The default shows nothing.
	Token func() (string, error)
	// Interceptors are around every call, the first outermost, and
	// StreamInterceptors around the opening of every stream. The default is none.
	Interceptors       []func(Caller) Caller
	StreamInterceptors []func(StreamOpener) StreamOpener
	// PreferIdle makes the pool use idle servers first. Each response carries the
	// number of other requests in flight on the server. A free slot ranks first for
	// 200 ms if that number was 0 or below the average. This nearly ends queueing on
	// the servers; a client with little load concentrates on fewer of them. See
	// docs/balance.md. The default orders slots by number, and equal numbers by the
	// longest idle time.
	PreferIdle bool
	// Dialer connects to an address. The default dials TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// Name is what the client calls itself to its servers. The default is the
	// host's name, a slash and the program's.
	Name string
	// Seed fixes the pool's random choices, for tests. The default is random.
	Seed uint64
	// Logger gets connections that broke and servers that refuse. The default
	// discards it.
	Logger *slog.Logger
}

// withDefaults returns a copy of o with every zero field filled in, or all that
// is wrong with it.
func (o *ServerOptions) withDefaults() (ServerOptions, error) {
	var r ServerOptions
	if o != nil {
		r = *o
	}
	fill(&r.MaxConns, DefaultMaxConns)
	fill(&r.MaxLanes, DefaultMaxLanes)
	fill(&r.MaxLanesPerConn, DefaultMaxLanesPerConn)
	fill(&r.MaxRequestBytes, MaxRequestBytes)
	r.Admission.withDefaults()
	fill(&r.MaxStreams, DefaultServerMaxStreams)
	fill(&r.ClientShare, DefaultClientShare)
	fill(&r.BufferBytes, DefaultBufferBytes)
	if r.Budget == nil {
		r.Budget = NewBudget(r.BufferBytes)
	}
	fill(&r.HandshakeTimeout, DefaultHandshakeTimeout)
	fill(&r.IdleTimeout, DefaultIdleTimeout)
	fill(&r.WriteTimeout, DefaultWriteTimeout)
	fill(&r.Name, defaultName())
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r, errors.Join(
		within("MaxConns", r.MaxConns, 1, 1<<30),
		within("MaxLanes", r.MaxLanes, 1, wire.MaxSlots),
		within("MaxLanesPerConn", r.MaxLanesPerConn, 1, wire.MaxLanes),
		within("MaxRequestBytes", r.MaxRequestBytes, 1, MaxRequestBytes),
		r.Admission.check(),
		within("MaxStreams", r.MaxStreams, 1, wire.MaxLanes),
		within("ClientShare", r.ClientShare, 0, 1),
		within("BufferBytes", r.BufferBytes, 8*wire.MaxPayload, 1<<50),
		within("HandshakeTimeout", r.HandshakeTimeout, 1, 1<<62),
		within("IdleTimeout", r.IdleTimeout, 1, 1<<62),
		within("WriteTimeout", r.WriteTimeout, 1, 1<<62),
		within("length of Name", len(r.Name), 0, wire.MaxNameBytes),
	)
}

// withDefaults returns a copy of o with every zero field filled in, or all that
// is wrong with it.
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
	fill(&r.KeepAlive, DefaultKeepAlive)
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
		within("HealthInterval", r.HealthInterval, 0, 1<<62),
		within("length of HealthMethod", len(r.HealthMethod), 0, MaxMethodBytes),
		within("LanesPerConn", r.LanesPerConn, 1, wire.MaxLanes),
		within("MaxStreams", r.MaxStreams, 1, wire.MaxLanes),
		within("DialTimeout", r.DialTimeout, 1, 1<<62),
		within("SilenceTimeout", r.SilenceTimeout, 10*time.Millisecond, 1<<62),
		within("KeepAlive", r.KeepAlive, 10*time.Millisecond, 1<<62),
		within("BufferBytes", r.BufferBytes, wire.MaxPayload, 1<<50),
		within("length of Name", len(r.Name), 0, wire.MaxNameBytes),
	)
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

// defaultName is how a process is told from others on the pages for people.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := host + "/" + filepath.Base(os.Args[0])
	return wire.Cut(name, wire.MaxNameBytes)
}
