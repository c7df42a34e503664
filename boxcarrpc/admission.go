package boxcarrpc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

const (
	// maxClients limits the clients whose rates are tracked, at about 100 bytes each. When
	// there are more, the one that was idle for longest is forgotten.
	maxClients = 16 << 10
	// The default burst is the number of requests that the rate allows in this time.
	burstTime = 100 * time.Millisecond
)

// A Limiter limits a rate of requests: AllowN reports whether n may begin now. It must be
// safe for concurrent use. NewLimiter makes one; a *rate.Limiter of golang.org/x/time/rate
// implements it too.
type Limiter interface {
	AllowN(now time.Time, n int) bool
}

// NewLimiter makes a token bucket of perSecond requests on average and of burst requests at
// once. A burst of 0 means perSecond over 100 ms, at least 1. The limiter is one atomic
// word and takes no lock.
func NewLimiter(perSecond float64, burst int) (Limiter, error) {
	fill(&burst, usualBurst(perSecond))
	rate, err := core.NewRate(perSecond, burst)
	if err != nil {
		return nil, err
	}
	return &limiter{rate: rate, start: time.Now()}, nil
}

// usualBurst returns the default burst.
func usualBurst(perSecond float64) int {
	return max(1, int(min(perSecond*burstTime.Seconds(), core.MaxBurst)))
}

type limiter struct {
	rate   core.Rate
	start  time.Time // start of the core's clock
	bucket atomic.Int64
}

func (l *limiter) AllowN(now time.Time, n int) bool { return l.take(now, n, 0) }

// take takes n tokens, and leaves at least keep.
func (l *limiter) take(now time.Time, n, keep int) bool {
	at := max(int64(now.Sub(l.start)), 0)
	for {
		bucket := l.bucket.Load()
		after, ok := l.rate.Take(at, bucket, n, keep)
		if !ok || l.bucket.CompareAndSwap(bucket, after) {
			return ok
		}
	}
}

// A tokenBucket is a Limiter whose tokens are known, as a *rate.Limiter of
// golang.org/x/time/rate: only then batch requests leave a reserve.
type tokenBucket interface {
	TokensAt(now time.Time) float64
	Burst() int
}

// Admission limits the requests that a server accepts. A request above a limit is refused
// as not processed, before a handler sees it, so that the client retries it on a slot of
// another server; the client then uses this server last for a moment. The zero value of
// each field means the default.
//
// Batch requests (see [WithBatch]) are admitted while a quarter of a limit, at least one
// request, stays free, so that interactive ones are refused only after them. This applies to
// all limits of this type and to those of streams, except a limit or burst of 1 and a Limiter
// of another package without the methods TokensAt and Burst of golang.org/x/time/rate.
type Admission struct {
	// MaxInFlight limits the streams and the requests that are being received or handled.
	// The default is 65,536; the limits of slots and streams apply as well.
	MaxInFlight int
	// Limiter limits the rate of all requests and streams together. The default is no
	// limit.
	Limiter Limiter
	// ClientRate limits the requests and streams of each client per second. The default is
	// no limit. A client is identified by its IP address, of IPv6 by the first 64 bits; all
	// peers without an IP address, as on Unix sockets, are one client.
	ClientRate float64
	// ClientBurst is the number of requests that a client may begin at once. The default is
	// ClientRate over 100 ms, at least 1.
	ClientBurst int
}

func (a *Admission) withDefaults() {
	fill(&a.MaxInFlight, DefaultMaxInFlight)
	if a.ClientRate > 0 {
		fill(&a.ClientBurst, usualBurst(a.ClientRate))
	}
}

func (a *Admission) check() error {
	var err error
	if a.ClientRate != 0 {
		if _, rateErr := core.NewRate(a.ClientRate, a.ClientBurst); rateErr != nil {
			err = errors.New("boxcarrpc: ClientRate and ClientBurst are " + rateErr.Error())
		}
	}
	return errors.Join(err,
		within("MaxInFlight", a.MaxInFlight, 1, 1<<30),
	)
}

// A refusal is the reason why a server does not accept a request.
type refusal uint8

const (
	admitted refusal = iota
	refusedStopping
	refusedNotAdmitted
	refusedDraining
	refusedBuffers
	refusedInFlight
	refusedRate
	refusedClientRate
	refusedStreams
	refusedClientStreams
	refusedNoStreams
	refusedCanceled
	refusedLate
	refusals
)

// refusalTable has the code and message that the client gets, and the name in ServerStats.
var refusalTable = [refusals]struct {
	code    Code
	message string
	name    string
}{
	refusedStopping:      {CodeUnavailable, "the server is shutting down", "stopping"},
	refusedNotAdmitted:   {CodeUnavailable, "the client is no longer authenticated", "unwelcome"},
	refusedDraining:      {CodeUnavailable, "the server is being drained", "draining"},
	refusedBuffers:       {CodeResourceExhausted, "the server has no room for another request of the client", "buffers"},
	refusedInFlight:      {CodeResourceExhausted, "the server has too many requests in flight", "in_flight"},
	refusedRate:          {CodeResourceExhausted, "the server gets too many requests a second", "rate"},
	refusedClientRate:    {CodeResourceExhausted, "the client sends this server too many requests a second", "client_rate"},
	refusedStreams:       {CodeResourceExhausted, "the server has no room for the stream", "streams"},
	refusedClientStreams: {CodeResourceExhausted, "the client has too many streams on this server", "client_streams"},
	refusedNoStreams:     {CodeUnimplemented, "the server has no such stream", "no_streams"},
	refusedCanceled:      {CodeCanceled, "", "canceled"},
	refusedLate:          {CodeDeadlineExceeded, "", "deadline"},
}

// An admission is the state of a server's Admission.
type admission struct {
	options  atomic.Pointer[Admission]
	start    time.Time // the origin of the core's time
	inFlight atomic.Int64
	// The refused requests, and those of batch among them.
	refused, refusedBatch [refusals]atomic.Uint64

	clients struct {
		sync.Mutex
		buckets core.Buckets[budget.Client]
		keep    int // tokens that batch leaves in a bucket
	}
	batch sync.Mutex // held while a batch request takes a token of the limiter
}

// init sets options that have been checked.
func (a *admission) init(options Admission) {
	a.start = time.Now()
	a.set(&options)
}

// set replaces the options with others that have been checked.
func (a *admission) set(options *Admission) {
	a.clients.Lock()
	defer a.clients.Unlock()
	if rate, err := core.NewRate(options.ClientRate, options.ClientBurst); err == nil {
		a.clients.buckets, a.clients.keep = core.NewBuckets[budget.Client](rate, maxClients), core.Reserve(rate.Burst())
	}
	a.options.Store(options)
}

// SetAdmission changes the limits for new requests. It returns an error and changes nothing
// if a is invalid. The tracked rates of clients are reset.
func (s *Server) SetAdmission(a Admission) error {
	a.withDefaults()
	if err := errors.Join(s.invalid, a.check()); err != nil {
		return err
	}
	s.admission.set(&a)
	return nil
}

// enter admits a request or a stream, or returns the reason for refusing it. The caller
// must call leave once for each that is admitted.
func (a *admission) enter(now time.Time, client budget.Client, batch bool) refusal {
	options := a.options.Load()
	switch {
	case !take(&a.inFlight, options.MaxInFlight, batch):
		return refusedInFlight
	case options.ClientRate > 0 && !a.allowClient(now, client, batch):
		// Checked before the rate of all, so that one client cannot use up the rate of the
		// others.
		a.leave()
		return refusedClientRate
	case options.Limiter != nil && !a.allow(options.Limiter, now, batch):
		a.leave()
		return refusedRate
	}
	return admitted
}

func (a *admission) leave() { a.inFlight.Add(-1) }

// take adds 1 to a counter below a limit. Batch leaves the reserve of the limit free.
func take(counter *atomic.Int64, limit int, batch bool) bool {
	if !batch {
		if counter.Add(1) <= int64(limit) {
			return true
		}
		counter.Add(-1)
		return false
	}
	// Batch must not exceed its part even for a moment, in which an interactive request would
	// be refused.
	for most := int64(limit - core.Reserve(limit)); ; {
		n := counter.Load()
		if n >= most {
			return false
		}
		if counter.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// refuse counts a request that is not admitted.
func (a *admission) refuse(why refusal, batch bool) {
	a.refused[why].Add(1)
	if batch {
		a.refusedBatch[why].Add(1)
	}
}

func (a *admission) allowClient(now time.Time, client budget.Client, batch bool) bool {
	at := max(int64(now.Sub(a.start)), 0)
	a.clients.Lock()
	defer a.clients.Unlock()
	keep := 0
	if batch {
		keep = a.clients.keep
	}
	return a.clients.buckets.Take(at, client, 1, keep)
}

// allow takes a token of the limiter of all requests. Batch leaves its reserve.
func (a *admission) allow(of Limiter, now time.Time, batch bool) bool {
	if !batch {
		return of.AllowN(now, 1)
	}
	switch of := of.(type) {
	case *limiter:
		return of.take(now, 1, core.Reserve(of.rate.Burst()))
	case tokenBucket:
		a.batch.Lock() // otherwise several could take the last token above the reserve
		defer a.batch.Unlock()
		if of.TokensAt(now) < float64(1+core.Reserve(of.Burst())) {
			return false
		}
	}
	return of.AllowN(now, 1)
}

// totals returns the refusals by reason, those of batch among them, and all.
func (a *admission) totals() (by, batch map[string]uint64, all uint64) {
	by, batch = make(map[string]uint64), make(map[string]uint64)
	for reason := admitted + 1; reason < refusals; reason++ {
		name := refusalTable[reason].name
		batch[name] = a.refusedBatch[reason].Load() // first: at most as many as all
		by[name] = a.refused[reason].Load()
		all += by[name]
	}
	return by, batch, all
}

// refuse answers a request that no handler has seen.
func (c *serverConn) refuse(lane *serverLane, why refusal) {
	c.turn.lastOK = false
	c.server.admission.refuse(why, lane.batch)
	refusal := refusalTable[why]
	c.out.Response(lane.number, 0, wire.Response{
		Sequence: lane.sequence,
		Total:    uint32(len(refusal.message)),
		Lowest:   c.lowestFree(),
		Code:     uint32(refusal.code),
	}, nil, nil, []byte(refusal.message), nil)
}

// refuseStream answers an OPEN that no handler has seen.
func (c *serverConn) refuseStream(number, sequence uint32, why refusal, batch bool) {
	c.server.admission.refuse(why, batch)
	refusal := refusalTable[why]
	c.out.Append(wire.AppendStatus(nil, number, 0, wire.Status{Sequence: sequence, Code: uint32(refusal.code), Message: refusal.message}, nil))
}

// Admit admits a request that arrived by another protocol, as over gRPC for the same
// handler. Admission then limits the requests of all protocols together, and ServerStats
// and the board count them. peer is the client; the rate of a client goes by its Identity,
// or else by its Address. batch is the priority of the request: see [IsBatchPriority]; the
// handler's context must have it too.
//
// The request is in flight until leave is called, once. The error is an *Error of
// CodeResourceExhausted with the reason, or describes invalid server options. A draining
// server still admits: it cannot notify clients of other protocols of the drain.
func (s *Server) Admit(peer *Peer, batch bool) (leave func(), err error) {
	if !s.usable() {
		return nil, s.invalid
	}
	if why := s.admission.enter(time.Now(), peer.Client(), batch); why != admitted {
		s.admission.refuse(why, batch)
		refusal := refusalTable[why]
		return nil, &Error{Code: refusal.code, Message: refusal.message}
	}
	return s.admission.leave, nil
}

// Lower bounds of a client's share: a server with low limits is one with few clients.
const (
	leastSlots   = 1 << 10
	leastConns   = 1 << 7
	leastStreams = 1 << 7
)

// clientShares counts the connections, slots and streams of each client and limits them. It
// is guarded by the server's mutex.
type clientShares struct {
	conns, slots, streams int // limits of one client
	clients               map[budget.Client]*clientShare
	// handshaking are the connections whose clients are not identified yet, by the network of
	// their address.
	handshaking core.Unauthenticated[budget.Client, *serverConn]
}

// A clientShare counts the connections, slots and streams of one client.
type clientShare struct {
	key          budget.Client
	conns, slots int // guarded by the server's mutex
	streams      atomic.Int64
	tools        atomic.Int64 // built-in streams
}

func newClientShares(o *ServerOptions) clientShares {
	bound := func(limit, least int) int {
		return min(limit, max(least, int(float64(limit)*o.ClientShare)))
	}
	return clientShares{
		conns:   bound(o.MaxConns, leastConns),
		slots:   bound(o.MaxLanes, leastSlots),
		streams: bound(o.MaxStreams, leastStreams),
		clients: make(map[budget.Client]*clientShare),

		handshaking: core.NewUnauthenticated[budget.Client, *serverConn](bound(o.MaxConns, leastConns)),
	}
}

// ofLocked returns the share of a client.
func (s *clientShares) ofLocked(key budget.Client) *clientShare {
	if share := s.clients[key]; share != nil {
		return share
	}
	return &clientShare{key: key}
}

// joinLocked adds a connection of a client.
func (s *clientShares) joinLocked(key budget.Client) *clientShare {
	share := s.ofLocked(key)
	s.clients[key] = share
	share.conns++
	return share
}

// leaveLocked removes a connection.
func (s *clientShares) leaveLocked(share *clientShare) {
	share.conns--
	s.forgetLocked(share)
}

// forgetLocked deletes the share of a client that has nothing left. Handlers may hold slots
// and streams after their connection has ended.
func (s *clientShares) forgetLocked(share *clientShare) {
	if share.conns == 0 && share.slots == 0 && share.streams.Load() == 0 && share.tools.Load() == 0 && s.clients[share.key] == share {
		delete(s.clients, share.key)
	}
}

// identify moves a connection, which has no slots or streams yet, to the client that it has
// authenticated as. It returns an error if the client has too many connections, or if the
// connection has been replaced.
func (s *Server) identify(c *serverConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shares.handshaking.Remove(c) {
		return errReplaced
	}
	if c.share.key == c.client {
		return nil
	}
	s.shares.leaveLocked(c.share)
	c.share = s.shares.joinLocked(c.client)
	if c.share.conns > s.shares.conns {
		return fmt.Errorf("%w: it has %d connections, the limit for one client", errNotAdmitted, s.shares.conns)
	}
	return nil
}

// errReplaced is the end of a connection whose client was not identified when the server had
// no room for others.
var errReplaced = errors.New("replaced by another connection before it was identified")

// roomLocked reports whether a connection of a client, which is not identified yet, may be
// accepted. victim is the connection that it replaces, nil if there is none.
func (s *Server) roomLocked(client budget.Client) (victim *serverConn, ok bool) {
	switch {
	case s.shares.ofLocked(client).conns >= s.shares.conns:
		return s.shares.handshaking.EvictOf(client)
	case len(s.mu.conns) >= s.options.MaxConns:
		return s.shares.handshaking.Evict()
	}
	return nil, true
}

// replaceLocked closes a connection that roomLocked or handshaking chose.
func (s *Server) replaceLocked(victim *serverConn) {
	victim.replaced.Store(true)
	s.forgetConnLocked(victim)
	conn.Close(victim.conn)
	s.warn(victim.conn.RemoteAddr(), "connections", "connection closed: others need its place and its client is not identified", "peer", victim.conn.RemoteAddr().String())
}
