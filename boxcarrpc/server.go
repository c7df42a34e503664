package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
)

// A Handler serves one request: it appends the response to dst and returns the
// extended slice, or an error, which becomes the answer: an *Error with its
// code and message, anything else with CodeUnknown and its text. request is
// valid until the handler returns. ctx ends when the client cancels, when the
// request's deadline passes and when the connection breaks.
//
// Handlers run concurrently, at most one for each slot given out. One that
// panics answers with CodeInternal and costs the client the slot.
type Handler func(ctx context.Context, method string, request, dst []byte) ([]byte, error)

// A Server gives out slots and serves the requests that come in on them.
type Server struct {
	handler   Handler
	streams   StreamHandler
	tls       *tls.Config // nil for plain text
	options   ServerOptions
	invalid   error // what is wrong with the options
	budget    *Budget
	shares    clientShares
	workers   workers
	methods   methods
	monitor   handlerMonitor
	admission admission
	warnings  warnLimit

	lowest atomic.Int32 // the board's lowest free slot, for every response
	counts struct {
		requests, errors, panics, accepted, faults atomic.Uint64
		streams, tools                             atomic.Int64
	}

	mu struct {
		sync.Mutex
		board     core.Board
		leases    uint64
		denied    uint64
		listeners map[net.Listener]struct{}
		conns     map[*serverConn]struct{}
		draining  bool // gives out no slots
		stopping  bool // draining, and ends with its last connection
		closed    bool
		empty     chan struct{} // closed when stopping and no connection is left
	}
	serving    sync.WaitGroup // connections
	boards     sync.Mutex     // one board is made at a time: it is large where there are many slots
	announcing sync.Mutex     // held while connections are told of a change of draining or stopping
}

// ServerStats is a server at one moment.
type ServerStats struct {
	Connections int               // open now
	Slots       int               // given out now
	LowestFree  int               // the slot that the next lane gets; MaxLanes if there is none
	Draining    bool              // it gives out no slots: see Drain
	InFlight    int               // requests being received or in a handler now, and streams
	Streams     int               // of these, streams
	Leases      uint64            // slots given out
	Denied      uint64            // questions for a slot below some number that got none
	Requests    uint64            // requests that reached a handler
	Errors      uint64            // of these, answered with an error
	Panics      uint64            // of these, ended by a panic
	Refused     uint64            // requests and streams refused as not processed, before any handler
	RefusedBy   map[string]uint64 // of these, by reason
	Accepted    uint64            // connections accepted
	Faults      uint64            // connections ended for a fault of the peer
	BufferBytes int64             // held by requests and by answers that are not yet sent, beyond 4 KiB each
}

// NewServer makes a server of h; opts may be nil. What is wrong with the
// options is reported by Serve.
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
	s.admission.init(s.options.Admission)
	s.methods.prefetch = s.options.Prefetch
	s.budget = s.options.Budget
	s.shares = newClientShares(&s.options)
	s.mu.board = core.NewBoard(make([]uint64, core.BoardWords(s.options.MaxLanes)), s.options.MaxLanes)
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.conns = make(map[*serverConn]struct{})
	s.mu.empty = make(chan struct{})
	s.monitor.init()
	return s
}

// Serve accepts connections from l until Shutdown or Close, and then returns
// ErrServerClosed; any other error is the listener's. It closes l. A server may
// serve several listeners at once.
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
		// Most likely out of file descriptors: others may close some.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.options.Logger.Warn("cannot accept a connection", "error", err, "retry_in", pause)
		time.Sleep(pause)
	}
}

// usable reports whether the options were good.
func (s *Server) usable() bool { return s.invalid == nil }

// temporary reports whether an error of Accept may pass.
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

// accept begins to serve a connection, or closes it if there are too many.
func (s *Server) accept(nc net.Conn) {
	s.counts.accepted.Add(1)
	peer := &Peer{Address: nc.RemoteAddr()}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.stopping || s.mu.closed:
		conn.Close(nc)
	case len(s.mu.conns) >= s.options.MaxConns:
		conn.Close(nc)
		s.warn(nc.RemoteAddr(), "connections", "connection refused: there are too many", "limit", s.options.MaxConns, "peer", peer.Address)
	case s.shares.ofLocked(clientOf(peer)).conns >= s.shares.conns:
		conn.Close(nc)
		s.warn(nc.RemoteAddr(), "connections of a client", "connection refused: the client has too many", "limit", s.shares.conns, "peer", peer.Address)
	default:
		c := newServerConn(s, nc, peer)
		c.share = s.shares.joinLocked(clientOf(peer))
		s.mu.conns[c] = struct{}{}
		s.serving.Add(1)
		s.monitor.start()
		s.workers.run(c)
	}
}

// gone forgets a connection.
func (s *Server) removeConn(c *serverConn) {
	defer s.serving.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	s.shares.leaveLocked(c.share)
	if len(s.mu.conns) == 0 && s.mu.stopping {
		s.closeEmptyLocked()
	}
}

func (s *Server) closeEmptyLocked() {
	select {
	case <-s.mu.empty:
	default:
		close(s.mu.empty)
	}
}

// Close ends every connection at once and the contexts of all requests. It does
// not wait for handlers that go on nevertheless. Close is idempotent.
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
	s.monitor.close()
	s.workers.close()
	s.mu.Lock()
	s.closeEmptyLocked()
	s.mu.Unlock()
	return nil
}

// lease takes a slot for a lane of a client.
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

// reclaim makes a slot free again.
func (s *Server) reclaim(number int32, share *clientShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share.slots--
	s.shares.forgetLocked(share)
	s.mu.board.Release(number)
	s.lowest.Store(s.mu.board.LowestFree())
}

// Stats returns the server's counters. They are read one after another, while
// the server goes on.
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
	r.InFlight = int(s.admission.inFlight.Load())
	r.Streams = int(s.counts.streams.Load())
	r.Requests = s.counts.requests.Load()
	r.Errors = s.counts.errors.Load()
	r.Panics = s.counts.panics.Load()
	r.RefusedBy, r.Refused = s.admission.totals()
	r.Accepted = s.counts.accepted.Load()
	r.Faults = s.counts.faults.Load()
	r.BufferBytes = s.budget.messages.Load()
	return r
}
