package bucket

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/cockroachdb/errors"
)

// slowDownInterval is the shortest time between two reductions of the concurrency: the
// requests that were in flight at the first one are refused as well.
const slowDownInterval = time.Second

// limiter bounds the requests and the bytes in flight. Waiting requests are admitted in the
// order of their arrival.
//
// The bound of requests adapts: a store's request to slow down halves it, and as many
// successes as the bound is high raise it by one (additive increase, multiplicative
// decrease; Chiu and Jain 1989).
type limiter struct {
	maxRequests float64
	maxBytes    int64

	mu struct {
		sync.Mutex
		limit     float64 // of requests, from 1 to maxRequests
		requests  int
		bytes     int64
		waiting   list.List // of *waiter
		slowedAt  time.Time
		slowDowns int64
	}
}

// waiter is a request that waits for its admission.
type waiter struct {
	bytes    int64
	admitted chan struct{} // closed once it is admitted
}

func newLimiter(maxRequests int, maxBytes int64) *limiter {
	l := &limiter{maxRequests: float64(maxRequests), maxBytes: maxBytes}
	l.mu.limit = l.maxRequests
	return l
}

// acquire waits until a request of so many bytes may begin. A request of more than
// maxBytes is charged maxBytes. The caller passes the result to release.
func (l *limiter) acquire(ctx context.Context, bytes int64) (charged int64, err error) {
	bytes = min(bytes, l.maxBytes)
	l.mu.Lock()
	if l.mu.waiting.Len() == 0 && l.fits(bytes) {
		l.admit(bytes)
		l.mu.Unlock()
		return bytes, nil
	}
	w := &waiter{bytes: bytes, admitted: make(chan struct{})}
	element := l.mu.waiting.PushBack(w)
	l.mu.Unlock()

	select {
	case <-w.admitted:
		return bytes, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.admitted: // admitted at the last moment
		l.releaseLocked(bytes)
	default:
		l.mu.waiting.Remove(element)
		l.admitWaiting() // the request behind it may be smaller
	}
	return 0, errors.Wrap(ctx.Err(), "bucket: wait until fewer requests are in flight")
}

// fits reports whether a request may begin; l.mu is held.
func (l *limiter) fits(bytes int64) bool {
	return l.mu.requests < int(l.mu.limit) && l.mu.bytes+bytes <= l.maxBytes
}

// admit counts a request; l.mu is held.
func (l *limiter) admit(bytes int64) {
	l.mu.requests++
	l.mu.bytes += bytes
}

// release ends a request that acquire admitted.
func (l *limiter) release(charged int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(charged)
}

func (l *limiter) releaseLocked(charged int64) {
	l.mu.requests--
	l.mu.bytes -= charged
	l.admitWaiting()
}

// admitWaiting admits as many waiting requests as fit; l.mu is held.
func (l *limiter) admitWaiting() {
	for first := l.mu.waiting.Front(); first != nil; first = l.mu.waiting.Front() {
		w := first.Value.(*waiter)
		if !l.fits(w.bytes) {
			return
		}
		l.admit(w.bytes)
		l.mu.waiting.Remove(first)
		close(w.admitted)
	}
}

// succeeded raises the bound after a request that the store served.
func (l *limiter) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.limit = min(l.mu.limit+1/l.mu.limit, l.maxRequests)
	l.admitWaiting()
}

// slowDown lowers the bound after the store asked for it.
func (l *limiter) slowDown(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.slowDowns++
	if now.Sub(l.mu.slowedAt) >= slowDownInterval {
		l.mu.slowedAt = now
		l.mu.limit = max(1, l.mu.limit/2)
	}
}
