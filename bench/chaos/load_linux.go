package main

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

const (
	callers = 8 // half of them call an idempotent method
	// patience is the deadline of a call.
	patience = 3 * time.Second
	// rest is the pause between two calls of a caller.
	rest = time.Millisecond
)

// A verdict is the result of a call.
type verdict uint8

const (
	unused verdict = iota
	pending
	answered
	wrong     // ended with a wrong response
	untouched // failed with the error "not processed"
	failed
)

// A load has callers that make one call at a time each.
type load struct {
	pool     *boxcarrpc.Pool
	verdicts []verdict        // by call; written by its caller
	next     [2]atomic.Uint64 // calls of each kind so far
	full     atomic.Bool      // the account has no room for more calls
	stop     atomic.Bool
	running  sync.WaitGroup
	lines    [callers]line
}

// A line has the results of a caller.
type line struct {
	mu    sync.Mutex
	good  time.Time     // of the last successful call
	gap   time.Duration // the longest without one
	calls int
	fails int
	wrong int
}

// The methods of even and of odd callers and calls: an idempotent one, and another one.
var methods = [2]string{"/chaos/Twice", "/chaos/Once"}

// newPool returns a pool for the servers that dials in the namespace of the callers.
func newPool(addresses []string, callers *host, hedgeAfter time.Duration) (*boxcarrpc.Pool, error) {
	return boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
		Size:     32,
		Methods:  map[string]boxcarrpc.Method{methods[0]: {Idempotent: true, HedgeAfter: hedgeAfter}},
		Dialer:   callers.dial,
		Insecure: true,
	})
}

func startLoad(pool *boxcarrpc.Pool) *load {
	l := &load{pool: pool, verdicts: make([]verdict, maxCalls)}
	for i := range l.lines {
		l.lines[i].good = time.Now()
		l.running.Go(func() { l.call(i) })
	}
	return l
}

// idempotent reports whether the method of a caller, or of a call, is idempotent. Even callers make even calls.
func idempotent(call uint64) bool { return call%2 == 0 }

func (l *load) call(caller int) {
	var request, dst []byte
	for !l.stop.Load() {
		kind := uint64(caller % 2)
		call := 2*(l.next[kind].Add(1)-1) + kind
		if call >= maxCalls {
			l.full.Store(true)
			return
		}
		l.verdicts[call] = pending
		request = appendRequest(request[:0], call)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		out, err := l.pool.Call(ctx, methods[kind], request, dst[:0])
		cancel()
		v, e := failed, (*boxcarrpc.Error)(nil)
		switch {
		case err == nil && bytes.Equal(out, appendResponse(nil, call)):
			v, dst = answered, out
		case err == nil:
			v = wrong
		case errors.As(err, &e) && !e.Processed:
			v = untouched
		}
		l.verdicts[call] = v
		l.lines[caller].ended(v)
		time.Sleep(rest)
	}
}

func (n *line) ended(v verdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	switch v {
	case answered:
		now := time.Now()
		n.gap = max(n.gap, now.Sub(n.good))
		n.good = now
	case wrong:
		n.wrong++
	default:
		n.fails++
	}
}

// A tally counts the results of callers.
type tally struct {
	gap                 time.Duration
	calls, fails, wrong int
}

// take returns and resets the results, of idempotent methods and others.
func (l *load) take() (twice, once tally) {
	for i := range l.lines {
		t := &once
		if idempotent(uint64(i)) {
			t = &twice
		}
		n := &l.lines[i]
		n.mu.Lock()
		now := time.Now()
		t.gap = max(t.gap, n.gap, now.Sub(n.good))
		t.calls, t.fails, t.wrong = t.calls+n.calls, t.fails+n.fails, t.wrong+n.wrong
		n.gap, n.good, n.calls, n.fails, n.wrong = 0, now, 0, 0, 0
		n.mu.Unlock()
	}
	return twice, once
}

// end waits until every call has ended.
func (l *load) end() {
	l.stop.Store(true)
	l.running.Wait()
}
