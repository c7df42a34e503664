package boxcarrpc

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

const (
	// A handler that takes longer than this is not run by a leader.
	quickHandler = 50 * time.Microsecond
	// A method stays slow until this many of its requests in a row were quick.
	slowMemory = 16
	// The server tracks this many methods. All others count as slow.
	maxMethods = 1 << 10
)

// A method holds what a server has measured of one method: whether its handler is quick
// enough to run in the leader of a connection, and the size of its responses.
type method struct {
	name     string
	prefetch func(requests [][]byte) // may be nil
	slow     atomic.Int32            // quick requests still needed until the method counts as quick
	buffers  sync.Pool               // of *[]byte, for its responses
	unfit    atomic.Int64            // size of the last response that did not fit; 0 if one was much smaller since
}

func (m *method) quick() bool { return m.slow.Load() <= 0 }

// record records the duration of a handler. It costs nothing for a method that is quick.
func (m *method) record(d time.Duration) {
	switch {
	case d > quickHandler:
		m.slow.Store(slowMemory)
	case !m.quick():
		m.slow.Add(-1)
	}
}

// buffer returns a buffer for a response. The buffers of a method adapt to the size of its
// responses.
func (m *method) buffer() *[]byte {
	if b, ok := m.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// keep returns a buffer to the pool after its response has been sent. The response may be
// the handler's own memory, which is not kept. If responses repeatedly do not fit, a larger
// buffer is allocated for the next one.
func (m *method) keep(b *[]byte, response []byte) {
	const small = 4 << 10 // kept even for much smaller responses
	switch {
	case cap(*b) > max(small, 4*len(response)):
		m.unfit.Store(0) // small responses occur between the large ones
		return
	case len(response) > cap(*b) && m.unfit.Swap(int64(len(response))) >= int64(len(response)/4):
		*b = make([]byte, 0, len(response)+len(response)/8)
	}
	m.buffers.Put(b)
}

// methods are the methods that a server was called with.
type methods struct {
	mu       sync.Mutex
	byName   map[string]*method
	prefetch map[string]func(requests [][]byte)
}

// named returns the method of this name. Above the limit it returns a new one, which is
// slow, for each request.
func (s *methods) named(name []byte) *method {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.byName[string(name)]; m != nil {
		return m
	}
	m := &method{name: string(name), prefetch: s.prefetch[string(name)]}
	if len(s.byName) >= maxMethods {
		m.slow.Store(slowMemory)
		return m
	}
	if s.byName == nil {
		s.byName = make(map[string]*method)
	}
	s.byName[m.name] = m
	return m
}

const (
	// ServerOptions.Prefetch gets at most this many requests at once: more cache lines than
	// a processor fetches at a time, and few enough that they are still in its cache when
	// the handlers run.
	maxPrefetch = 16
	// Longer requests are not prefetched.
	maxPrefetchBytes = smallRequest
)

// Without Prefetch, requests that a leader has read together wait for memory one after
// another, each in its handler. ServerOptions.Prefetch lets their cache misses overlap. It
// sees the requests in the read buffer, before the first of them is handled, so it does not
// change how they are served.
//
// A handler of several requests with several responses would not look anything up twice.
// But admission, deadlines, authorisation, interceptors and errors belong to single
// requests, and one page fault would delay all requests of a batch. The second lookup, in
// memory that was just fetched, costs docservice a twentieth of its time.

// A prefetchBatch holds requests for one method that arrived together. They are copies: a
// follower that takes over the turn reads into the same read buffer.
type prefetchBatch struct {
	method   *method
	requests [][]byte
	bytes    []byte
}

var prefetchBatches = sync.Pool{New: func() any { return new(prefetchBatch) }}

func (a *prefetchBatch) free() {
	a.method, a.requests, a.bytes = nil, a.requests[:0], a.bytes[:0]
	prefetchBatches.Put(a)
}

// gather adds the requests among the first frames of b and returns the rest of b. Malformed
// frames are reported later, when they are handled.
func (a *prefetchBatch) gather(c *serverConn, b []byte) (rest []byte) {
	for range maxPrefetch {
		f, n, err := wire.PeekFrame(b)
		if n == 0 || err != nil {
			break
		}
		b = b[n:]
		if f.Type != wire.TypeRequest {
			continue
		}
		r, name, data, err := f.Request()
		if err != nil {
			break
		}
		if len(data) == int(r.Total) && len(data) <= maxPrefetchBytes {
			a.add(c.methodNamed(name), data)
		}
	}
	return b
}

// add adds a request if it is for the same method as the others.
func (a *prefetchBatch) add(m *method, request []byte) {
	if m.prefetch == nil || a.method != nil && a.method != m {
		return
	}
	a.method = m
	start := len(a.bytes)
	a.bytes = append(a.bytes, request...)
	a.requests = append(a.requests, a.bytes[start:len(a.bytes):len(a.bytes)])
}

// protect calls the prefetch function and logs a panic, which does not affect the requests.
// It calls Authorize once for all of the requests, which are for one method.
func (a *prefetchBatch) protect(c *serverConn) {
	defer func() {
		if v := recover(); v != nil {
			c.server.options.Logger.Error("ServerOptions.Prefetch panicked", "method", a.method.name, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if allow := c.server.options.Authorize; allow != nil {
		ctx := &callContext{peer: c.peer, slot: -1}
		defer ctx.end()
		if allow(ctx, a.method.name) != nil {
			return
		}
	}
	a.method.prefetch(a.requests)
}
