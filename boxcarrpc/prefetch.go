package boxcarrpc

import (
	"runtime/debug"
	"sync"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

const (
	// ServerOptions.Prefetch is told of at most so many requests at once: more than a
	// processor fetches lines of memory at a time, and few enough that these are still in
	// its cache when their handler comes.
	maxPrefetch = 16
	// It is told of no request that is longer.
	maxPrefetchBytes = smallRequest
)

// Requests that a leader has read together would wait for memory one after the other,
// each in its handler. ServerOptions.Prefetch can have the waits of all be one. It is told of
// the requests while they lie in the read buffer, before the first of them is taken: so it
// has no part in what becomes of them, which is as if it were not there.
//
// A handler of several requests, with as many answers, would do nothing twice. But
// admission, deadlines, authorisation, interceptors and errors are of one request each,
// and one that waits for a page would hold up those that came with it. What docservice
// does twice, a look-up in memory that has just been fetched, is a twentieth of its time.

// prefetchRequests tells ServerOptions.Prefetch of the requests in the read buffer, if there are
// several. It reports whether the turn is still the caller's.
func (c *serverConn) prefetchRequests() (leads bool) {
	b := c.in.Unread()
	if len(b) > c.turn.notPrefetched || !c.turn.lastOK || len(c.server.options.Prefetch) == 0 {
		return true
	}
	if _, first, _ := wire.PeekFrame(b); first == 0 || first == len(b) {
		return true
	}
	a := prefetchBatches.Get().(*prefetchBatch)
	defer a.free()
	c.turn.notPrefetched = len(a.gather(c, b))
	if len(a.requests) < 2 || !a.method.quick() {
		return true
	}
	return c.runPrefetch(a)
}

// A prefetchBatch is requests for one method that arrived together. They are copies: when a
// follower takes the turn over, it reads into the buffer that they came in.
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

// gather looks at the first frames of b and returns what is behind them. What is wrong
// with one is found when it is taken.
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

// add adds a request, if it is for the method of the others.
func (a *prefetchBatch) add(m *method, request []byte) {
	if m.prefetch == nil || a.method != nil && a.method != m {
		return
	}
	a.method = m
	start := len(a.bytes)
	a.bytes = append(a.bytes, request...)
	a.requests = append(a.requests, a.bytes[start:len(a.bytes):len(a.bytes)])
}

// runPrefetch tells of requests in the leader, as serve runs a handler. If that ends the
// goroutine the watch gives the turn to a follower.
func (c *serverConn) runPrefetch(a *prefetchBatch) (leads bool) {
	start := c.turn.clock
	number := c.turn.begin(&c.server.monitor, c)
	returned := false
	defer func() {
		if !returned {
			a.method.slow.Store(slowMemory)
		}
	}()
	a.protect(c)
	returned = true
	leads = c.turn.running.CompareAndSwap(number, 0)
	end := time.Now()
	c.took(a.method, start, end)
	if leads {
		c.turn.clock = end
	}
	return leads
}

// protect turns a panic into a line for the operator: the requests have lost nothing.
// It asks Authorize once for all of the requests, which are for one method.
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
