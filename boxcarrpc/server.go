package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/faultlog"
	"docstore/boxcarrpc/internal/turns"
	"docstore/boxcarrpc/session"
)

// A Handler serves one request. It appends the response to dst and returns the extended
// slice, or an error: an *Error is sent with its code and message, any other error with
// CodeUnknown and its text. request is valid until the handler returns. ctx ends when the
// client cancels, when the request's deadline passes and when the connection fails.
//
// Handlers run concurrently, at most one for each granted slot. A panic is answered with
// CodeInternal and costs the client the slot.
type Handler func(ctx context.Context, method string, request, dst []byte) ([]byte, error)

// A Server grants slots and serves the requests on them. It is safe for concurrent use.
type Server struct {
	handler  Handler
	streams  StreamHandler
	tls      *tls.Config // nil for plain text
	options  ServerOptions
	invalid  error // the errors in the options
	budget   *budget.Budget
	shares   clientShares
	sessions *session.Set
	workers  turns.Workers
	methods  methods
	monitor  turns.Monitor
	gate     *budget.Gate
	leave    func() // gate.Leave, which would allocate for each request
	refused  refusalCount
	faults   *faultlog.Log

	lowest atomic.Int32 // the board's lowest free slot, sent with every response
	counts struct {
		requests, errors, panics, accepted, faults atomic.Uint64
		otherZone                                  atomic.Uint64 // of requests
		streams, tools                             atomic.Int64
	}

	mu struct {
		sync.Mutex
		board     core.Board
		leases    uint64
		denied    uint64
		listeners map[net.Listener]struct{}
		conns     map[*serverConn]struct{}
		draining  bool // grants no slots
		stopping  bool // draining, and stops when its last connection ends
		closed    bool
		empty     chan struct{} // closed when stopping and no connection is left
	}
	serving    sync.WaitGroup // counts connections
	announcing sync.Mutex     // held while connections are informed of a change of draining or stopping
}

// ServerStats are a server's gauges and counters at one moment.
type ServerStats struct {
	Connections int    // open connections
	Slots       int    // granted slots
	LowestFree  int    // the slot that the next lane gets; MaxLanes if none is free
	Draining    bool   // no slots are granted: see Drain
	InFlight    int    // requests that are being received or handled, and streams
	Streams     int    // of these, streams
	Leases      uint64 // slots granted
	Denied      uint64 // LEASE requests that were denied
	Requests    uint64 // requests that reached a handler
	OtherZone   uint64 // of these, from clients of other zones
	Errors      uint64
	Panics      uint64            // of these, ended by a panic
	Refused     uint64            // requests and streams refused as not processed, before a handler
	RefusedBy   map[string]uint64 // of these, by reason
	Accepted    uint64            // connections accepted
	Faults      uint64            // connections ended because of a fault of the peer
	BufferBytes int64             // bytes of requests, and of responses not yet sent, above 4 KiB each

	RefusedBatchBy map[string]uint64 // of RefusedBy, those of batch requests
}

// NewServer returns a server that calls h. opts may be nil; Serve returns the errors in
// them.
func NewServer(h Handler, opts *ServerOptions) *Server {
	s := &Server{}
	s.options, s.invalid = opts.withDefaults()
	s.handler = chain(authorized(s.options.Authorize, s.withTools(h)), s.options.Interceptors)
	s.streams = chain(authorizedStream(s.options.Authorize, s.withToolStreams(s.options.StreamHandler)), s.options.StreamInterceptors)
	s.tls = s.options.tlsConfig()
	if s.invalid == nil && h == nil {
		s.invalid = errors.New("boxcarrpc: a server needs a handler")
	}
	if s.invalid != nil {
		return s
	}
	s.gate = budget.NewGate(s.options.Admission)
	s.leave = s.gate.Leave
	s.budget = s.options.Budget
	s.shares = newClientShares(&s.options)
	s.sessions = session.NewSet(s.options.TLS)
	s.mu.board = core.NewBoard(make([]uint64, core.BoardWords(s.options.MaxLanes)), s.options.MaxLanes)
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.conns = make(map[*serverConn]struct{})
	s.mu.empty = make(chan struct{})
	s.monitor.Init()
	s.faults = faultlog.New(s.options.Logger)
	return s
}

// Serve accepts connections from l until Shutdown or Close and then returns
// ErrServerClosed; any other error is the listener's. It closes l. A server may serve
// several listeners concurrently.
func (s *Server) Serve(l net.Listener) error {
	defer conn.Close(l)
	if s.invalid != nil {
		return s.invalid
	}
	if err := s.checkListener(l); err != nil {
		return err
	}
	if !s.addListener(l) {
		return ErrServerClosed
	}
	defer s.removeListener(l)
	for pause := time.Duration(0); ; {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.accept(nc)
			continue
		case s.isClosed():
			return ErrServerClosed
		case !temporary(err):
			return err
		}
		// Most likely out of file descriptors: other connections may close.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.options.Logger.Warn("cannot accept a connection", "error", err, "retry_in", pause)
		time.Sleep(pause)
	}
}

// usable reports whether the options are valid.
func (s *Server) usable() bool { return s.invalid == nil }

// temporary reports whether Accept may succeed after err.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping || s.mu.closed {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	return true
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.listeners, l)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopping || s.mu.closed
}

// accept serves a connection, or closes it if there are too many.
func (s *Server) accept(nc net.Conn) {
	s.counts.accepted.Add(1)
	peer := &Peer{Address: nc.RemoteAddr()}
	client := peer.Client()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping || s.mu.closed {
		conn.Close(nc)
		return
	}
	victim, ok := s.roomLocked(client)
	if !ok {
		conn.Close(nc)
		s.faults.Warn(nc.RemoteAddr(), "connections", "connection refused: too many connections, of all clients or of this one",
			"limit", s.options.MaxConns, "limit_of_client", s.shares.conns, "peer", peer.Address)
		return
	}
	if victim != nil {
		s.replaceLocked(victim)
	}
	c := newServerConn(s, nc, peer)
	if victim, full := s.shares.handshaking.Add(client, c); full {
		s.replaceLocked(victim)
	}
	c.share = s.shares.joinLocked(client)
	s.mu.conns[c] = struct{}{}
	s.serving.Add(1)
	s.monitor.Start()
	s.workers.Run(c)
}

// removeConn removes a connection that has ended.
func (s *Server) removeConn(c *serverConn) {
	defer s.serving.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetConnLocked(c)
	if len(s.mu.conns) == 0 && s.mu.stopping {
		s.closeEmptyLocked()
	}
}

// forgetConnLocked stops to count a connection, if it is counted.
func (s *Server) forgetConnLocked(c *serverConn) {
	if _, ok := s.mu.conns[c]; ok {
		delete(s.mu.conns, c)
		s.shares.handshaking.Remove(c)
		s.shares.leaveLocked(c.share)
	}
}

func (s *Server) closeEmptyLocked() {
	select {
	case <-s.mu.empty:
	default:
		close(s.mu.empty)
	}
}

// Close closes every connection at once and ends the contexts of all requests. It does not
// wait for handlers that ignore their context. Close is idempotent.
func (s *Server) Close() error {
	if !s.usable() {
		return nil
	}
	s.mu.Lock()
	s.mu.closed = true
	for l := range s.mu.listeners {
		conn.Close(l)
	}
	for c := range s.mu.conns {
		conn.Close(c.conn)
	}
	if len(s.mu.conns) == 0 {
		s.closeEmptyLocked()
	}
	s.mu.Unlock()
	s.serving.Wait()
	s.sessions.Close()
	s.monitor.Close()
	s.workers.Close()
	s.mu.Lock()
	s.closeEmptyLocked()
	s.mu.Unlock()
	return nil
}

// lease grants a slot below a number to a lane of a client, if one is free.
func (s *Server) lease(below int32, share *clientShare) (number int32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.draining || s.mu.closed || share.slots >= s.shares.slots {
		s.mu.denied++
		return core.NoSlot, false
	}
	if number, ok = s.mu.board.Lease(below); ok {
		s.mu.leases++
		share.slots++
	} else {
		s.mu.denied++
	}
	s.lowest.Store(s.mu.board.LowestFree())
	return number, ok
}

// reclaim frees a slot.
func (s *Server) reclaim(number int32, share *clientShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share.slots--
	s.shares.forgetLocked(share)
	s.mu.board.Release(number)
	s.lowest.Store(s.mu.board.LowestFree())
}

// Stats returns the server's gauges and counters. They are not read at one instant.
func (s *Server) Stats() ServerStats {
	if !s.usable() {
		return ServerStats{}
	}
	s.mu.Lock()
	r := ServerStats{
		Connections: len(s.mu.conns),
		Slots:       s.mu.board.Taken(),
		LowestFree:  min(int(s.mu.board.LowestFree()), s.options.MaxLanes),
		Draining:    s.mu.draining,
		Leases:      s.mu.leases,
		Denied:      s.mu.denied,
	}
	s.mu.Unlock()
	r.InFlight = int(s.gate.InFlight())
	r.Streams = int(s.counts.streams.Load())
	r.Requests = s.counts.requests.Load()
	r.OtherZone = s.counts.otherZone.Load()
	r.Errors = s.counts.errors.Load()
	r.Panics = s.counts.panics.Load()
	r.RefusedBy, r.RefusedBatchBy, r.Refused = s.refused.totals()
	r.Accepted = s.counts.accepted.Load()
	r.Faults = s.counts.faults.Load()
	r.BufferBytes = s.budget.Stats().Messages
	return r
}

// Drain makes the clients use other servers while the server keeps running: it grants no
// more slots and informs every client, including those that connect later. Clients release
// their slots as they become idle and keep one connection, on which they learn of Undrain.
// Requests in flight finish; requests that cross the notice are refused as not processed
// and retried elsewhere. Drain does not wait: the server is drained when ServerStats has no
// Slots and nothing InFlight. It is idempotent. Shutdown drains a server in order to stop
// it.
func (s *Server) Drain() { s.setDraining(true) }

// Undrain undoes Drain: clients return within half a second, each at a random time. It does
// nothing after Shutdown.
func (s *Server) Undrain() { s.setDraining(false) }

func (s *Server) setDraining(draining bool) {
	if !s.usable() {
		return
	}
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.mu.Lock()
	if s.mu.stopping || s.mu.closed || s.mu.draining == draining {
		s.mu.Unlock()
		return
	}
	s.mu.draining = draining
	conns := s.connsLocked()
	s.mu.Unlock()
	for _, c := range conns { // without s.mu: a connection locks it under its own mutex
		c.setDraining(draining)
	}
	s.options.Logger.Info("draining", "on", draining)
}

// Shutdown stops the server gracefully. It closes the listeners, tells every client that it
// is going away, refuses new requests as not processed so that they are retried elsewhere,
// waits for those in flight and returns when all connections are closed. If ctx ends first
// it returns the error of ctx; call Close then.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.usable() {
		return nil
	}
	s.stop()
	select {
	case <-s.mu.empty:
		return s.Close()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) stop() {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.mu.Lock()
	if s.mu.stopping || s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.draining, s.mu.stopping = true, true
	for l := range s.mu.listeners {
		conn.Close(l)
	}
	conns := s.connsLocked()
	if len(conns) == 0 {
		s.closeEmptyLocked()
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.stop()
	}
}

// connsLocked returns the connections.
func (s *Server) connsLocked() []*serverConn {
	conns := make([]*serverConn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	return conns
}

// state is sent to the client of a new connection.
func (s *Server) state() (draining, stopping bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.draining, s.mu.stopping
}

// SetAdmission changes the limits for new requests. It returns an error and changes nothing
// if a is invalid. The tracked rates of clients are reset.
func (s *Server) SetAdmission(a budget.Admission) error {
	a, err := a.Complete()
	if err := errors.Join(s.invalid, err); err != nil {
		return err
	}
	s.gate.Set(a)
	return nil
}

// Admit admits a request that arrived by another protocol, as over gRPC for the same
// handler. Admission then limits the requests of all protocols together, and ServerStats
// and the board count them. client is that of Peer.Client. batch is the priority of the
// request: see [IsBatchPriority]; the handler's context must have it too.
//
// The request is in flight until leave is called, once. The error is an *Error of
// CodeResourceExhausted with the reason, or describes invalid server options. A draining
// server still admits: it cannot notify clients of other protocols of the drain.
func (s *Server) Admit(client budget.Client, batch bool) (leave func(), err error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	if why := refusal(s.gate.Enter(time.Now(), client, batch)); why != admitted {
		s.refused.add(why, batch)
		refusal := refusalTable[why]
		return nil, &Error{Code: refusal.code, Message: refusal.message}
	}
	return s.leave, nil
}

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
	s.faults.Warn(victim.conn.RemoteAddr(), "connections", "connection closed: others need its place and its client is not identified", "peer", victim.conn.RemoteAddr().String())
}
