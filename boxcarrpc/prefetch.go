package boxcarrpc

import (
	"runtime/debug"
	"sync"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

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

// prefetchRequests calls ServerOptions.Prefetch for the requests in the read buffer, if
// there are several. It reports whether the caller still has the read turn.
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

// runPrefetch calls the prefetch function in the leader, as serve calls a handler. If the
// function ends its goroutine, the handler monitor gives the turn to a follower.
func (c *serverConn) runPrefetch(a *prefetchBatch) (leads bool) {
	start := c.turn.clock
	number := c.beginRun()
	returned := false
	defer func() {
		if !returned {
			a.method.slow.Store(slowMemory)
		}
	}()
	a.protect(c)
	returned = true
	leads = c.turn.End(number)
	end := time.Now()
	c.recordRun(a.method, start, end)
	if leads {
		c.turn.clock = end
	}
	return leads
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
