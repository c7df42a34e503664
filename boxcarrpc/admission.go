package boxcarrpc

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

// Defaults of Admission.
const (
	DefaultMaxInFlight = 64 << 10
	DefaultMaxClients  = 16 << 10
	// A burst is by default what comes in this time.
	burstTime = 100 * time.Millisecond
)

// A Limiter bounds a rate of requests: whether n may begin now. It must be safe for
// concurrent use. NewLimiter makes one; a *rate.Limiter of golang.org/x/time/rate
// is one, too.
type Limiter interface {
	AllowN(now time.Time, n int) bool
}

// NewLimiter makes a token bucket: perSecond requests in the long run, and burst at
// once after a rest; 0 is what comes in 100 ms, at least 1. It is one word, and takes
// no lock.
func NewLimiter(perSecond float64, burst int) (Limiter, error) {
	fill(&burst, usualBurst(perSecond))
	rate, err := core.NewRate(perSecond, burst)
	if err != nil {
		return nil, err
	}
	return &limiter{rate: rate, start: time.Now()}, nil
}

// usualBurst is the default of a burst.
func usualBurst(perSecond float64) int {
	return max(1, int(min(perSecond*burstTime.Seconds(), core.MaxBurst)))
}

type limiter struct {
	rate   core.Rate
	start  time.Time // the origin of the core's time
	bucket atomic.Int64
}

func (l *limiter) AllowN(now time.Time, n int) bool {
	at := max(int64(now.Sub(l.start)), 0)
	for {
		bucket := l.bucket.Load()
		after, ok := l.rate.Take(at, bucket, n)
		if !ok || l.bucket.CompareAndSwap(bucket, after) {
			return ok
		}
	}
}

// Admission says which requests a server takes. Those that it does not are refused
// as not processed, before a handler sees them, so that a client's next slot, of
// another server, serves them; the client then uses this server last for a moment.
// The zero value of each field means the default.
type Admission struct {
	// MaxInFlight bounds the requests that are being received or in a handler,
	// and the streams. The default is 65,536; fewer slots or streams bound them
	// more.
	MaxInFlight int
	// Limiter bounds the rate of all requests and streams together. The default
	// is none.
	Limiter Limiter
	// ClientRate bounds the requests and streams of each client, a second. The
	// default is no bound. A client is known by its IP address, of IPv6 the first
	// 64 bits; what has none, as a Unix socket, is one client.
	ClientRate float64
	// ClientBurst is how many requests a client may begin at once after a rest.
	// The default is what ClientRate lets through in 100 ms, at least 1.
	ClientBurst int
	// MaxClients bounds the clients whose rate is known, at 100 bytes or so each:
	// then the one that was quiet for longest is forgotten. The default is 16,384.
	MaxClients int
}

func (a *Admission) withDefaults() {
	fill(&a.MaxInFlight, DefaultMaxInFlight)
	fill(&a.MaxClients, DefaultMaxClients)
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
		within("MaxClients", a.MaxClients, 1, 1<<24),
	)
}

// A refusal is why a server does not take a request.
type refusal uint8

const (
	taken refusal = iota
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

// What is told of a refusal: to people, to the client, and in ServerStats.
var refusalTable = [refusals]struct {
	code    Code
	message string
	name    string
}{
	refusedStopping:      {CodeUnavailable, "the server is shutting down", "stopping"},
	refusedNotAdmitted:   {CodeUnavailable, "the client is not let in any more", "unwelcome"},
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

// An admission is a server's state of it.
type admission struct {
	options  atomic.Pointer[Admission]
	start    time.Time // the origin of the core's time
	inFlight atomic.Int64
	refused  [refusals]atomic.Uint64

	clients struct {
		sync.Mutex
		buckets core.Buckets[clientKey]
	}
}

// init takes options that have been checked.
func (a *admission) init(options Admission) {
	a.start = time.Now()
	a.set(&options)
}

// set takes options that have been checked in the place of others.
func (a *admission) set(options *Admission) {
	a.clients.Lock()
	defer a.clients.Unlock()
	if rate, err := core.NewRate(options.ClientRate, options.ClientBurst); err == nil {
		a.clients.buckets = core.NewBuckets[clientKey](rate, options.MaxClients)
	}
	a.options.Store(options)
}

// SetAdmission changes which requests the server takes from now on. It returns what is
// wrong with a, and changes nothing then. What is known of clients' rates is forgotten.
func (s *Server) SetAdmission(a Admission) error {
	a.withDefaults()
	if err := errors.Join(s.invalid, a.check()); err != nil {
		return err
	}
	s.admission.set(&a)
	return nil
}

// enter takes a request or a stream in, or says why not. What was taken in leaves.
func (a *admission) enter(now time.Time, client clientKey) refusal {
	options := a.options.Load()
	switch {
	case a.inFlight.Add(1) > int64(options.MaxInFlight):
		a.leave()
		return refusedInFlight
	case options.ClientRate > 0 && !a.allowClient(now, client):
		// Before the rate of all, which a client that sends too much is not to use
		// up for the others.
		a.leave()
		return refusedClientRate
	case options.Limiter != nil && !options.Limiter.AllowN(now, 1):
		a.leave()
		return refusedRate
	}
	return taken
}

func (a *admission) leave() { a.inFlight.Add(-1) }

func (a *admission) allowClient(now time.Time, client clientKey) bool {
	at := max(int64(now.Sub(a.start)), 0)
	a.clients.Lock()
	defer a.clients.Unlock()
	return a.clients.buckets.Take(at, client, 1)
}

// totals are the refusals by reason, and all of them.
func (a *admission) totals() (by map[string]uint64, all uint64) {
	by = make(map[string]uint64)
	for reason := taken + 1; reason < refusals; reason++ {
		n := a.refused[reason].Load()
		by[refusalTable[reason].name] = n
		all += n
	}
	return by, all
}

// A clientKey tells the clients of a server apart.
type clientKey struct {
	identity string       // who it has proved to be, if it has
	network  netip.Prefix // else where it is; zero for what has no IP address
}

func clientOf(p *Peer) clientKey {
	if p.Identity != "" {
		return clientKey{identity: p.Identity}
	}
	return clientAt(p.Address)
}

// clientAt is the client behind an address. Who has one IPv6 address has 2^64.
func clientAt(address net.Addr) clientKey {
	port, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return clientKey{}
	}
	ip := port.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return clientKey{}
	}
	return clientKey{network: network}
}

// refuse answers a request that no handler has seen.
func (c *serverConn) refuse(lane *serverLane, why refusal) {
	c.turn.lastOK = false
	c.server.admission.refused[why].Add(1)
	told := refusalTable[why]
	c.out.Response(lane.number, 0, wire.Response{
		Sequence: lane.sequence,
		Total:    uint32(len(told.message)),
		Lowest:   c.lowestFree(),
		Code:     uint32(told.code),
	}, nil, nil, []byte(told.message), nil) // fits into one frame
}

// refuseStream answers the opening of a stream that no handler has seen.
func (c *serverConn) refuseStream(number, sequence uint32, why refusal) {
	c.server.admission.refused[why].Add(1)
	told := refusalTable[why]
	c.out.Status(number, 0, wire.Status{Sequence: sequence, Code: uint32(told.code), Message: told.message}, nil)
}

// Admit takes in a request that has come by another door than the server's own, as
// one over gRPC for the same handler: Admission then bounds the requests of all doors
// together, and ServerStats, and the board tell of them. peer is who asks;
// its Identity, or else its Address, has the rate of a client. The request is in
// flight until leave is called, once. An error is an *Error of CodeResourceExhausted
// that says why the server does not take it, or what is wrong with the server's
// options; one that drains does take it, since who came by another door has not been
// told to go elsewhere.
func (s *Server) Admit(peer *Peer) (leave func(), err error) {
	if !s.usable() {
		return nil, s.invalid
	}
	if why := s.admission.enter(time.Now(), clientOf(peer)); why != taken {
		s.admission.refused[why].Add(1)
		told := refusalTable[why]
		return nil, &Error{Code: told.code, Message: told.message}
	}
	return s.admission.leave, nil
}

// A client may always have this much, whatever its share: a server with low limits is one
// with few clients.
const (
	leastSlots   = 1 << 10
	leastConns   = 1 << 7
	leastStreams = 1 << 7
)

// clientShares are what each client of a server has of its connections, slots and
// streams, and may have. It is guarded by the server's mutex.
type clientShares struct {
	conns, slots, streams int // of one client at most
	clients               map[clientKey]*clientShare
}

// A clientShare is what one client has.
type clientShare struct {
	key          clientKey
	conns, slots int // guarded by the server's mutex
	streams      atomic.Int64
}

func newClientShares(o *ServerOptions) clientShares {
	bound := func(limit, least int) int {
		return min(limit, max(least, int(float64(limit)*o.ClientShare)))
	}
	return clientShares{
		conns:   bound(o.MaxConns, leastConns),
		slots:   bound(o.MaxLanes, leastSlots),
		streams: bound(o.MaxStreams, leastStreams),
		clients: make(map[clientKey]*clientShare),
	}
}

// ofLocked returns what a client has.
func (s *clientShares) ofLocked(key clientKey) *clientShare {
	if share := s.clients[key]; share != nil {
		return share
	}
	return &clientShare{key: key}
}

// joinLocked counts a connection of a client.
func (s *clientShares) joinLocked(key clientKey) *clientShare {
	share := s.ofLocked(key)
	s.clients[key] = share
	share.conns++
	return share
}

// leaveLocked counts a connection less.
func (s *clientShares) leaveLocked(share *clientShare) {
	share.conns--
	s.forgetLocked(share)
}

// forgetLocked forgets a client that has nothing. Handlers may hold slots after their
// connection has ended.
func (s *clientShares) forgetLocked(share *clientShare) {
	if share.conns == 0 && share.slots == 0 && s.clients[share.key] == share {
		delete(s.clients, share.key)
	}
}

// identify moves a connection, which has no slots and streams yet, to the client that its
// peer has proved to be. It reports whether that client may have one more.
func (s *Server) identify(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.share.key == c.client {
		return true
	}
	s.shares.leaveLocked(c.share)
	c.share = s.shares.joinLocked(c.client)
	return c.share.conns <= s.shares.conns
}
