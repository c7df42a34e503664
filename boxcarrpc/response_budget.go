package boxcarrpc

import (
	"slices"
	"sync/atomic"
)

const (
	// A response up to this size is received whatever the budget holds, so that servers
	// which send long responses slowly do not make short calls fail. A pool holds at most
	// as many as it has slots.
	freeResponse = 64 << 10
	// The buffer of a longer response grows from this size as the response arrives: a
	// server that announces 32 MiB has not sent them yet.
	firstResponse = 1 << 20
	// A server may hold this share of the budget, besides one response of any size.
	serverShare = 2
)

// A responseBudget bounds the memory of responses that a pool is receiving.
type responseBudget struct {
	limit int64
	used  atomic.Int64
}

// take takes n bytes for a response that has own bytes, from a server that holds those of
// held.
func (b *responseBudget) take(held *atomic.Int64, own, n int64) bool {
	if b.used.Add(n) <= b.limit {
		if all := held.Add(n); all <= b.limit/serverShare || all == own+n {
			return true
		}
		held.Add(-n)
	}
	b.used.Add(-n)
	return false
}

func (b *responseBudget) give(held *atomic.Int64, n int64) {
	held.Add(-n)
	b.used.Add(-n)
}

// makeRoom makes room in dst for n more bytes of the response, at most as many as were
// announced. It gives the response up if the pool has no memory for it.
func (l *clientLane) makeRoom(n int) {
	got := len(l.dst) - l.begin
	if len(l.dst)+n <= cap(l.dst) {
		return
	}
	total := int(l.response.Total)
	want := total
	if total > freeResponse {
		want = min(total, max(firstResponse, 2*(got+n)))
		more := int64(want) - l.charged
		if !l.transport.pool.buffers.take(&l.transport.peer.responses, l.charged, more) {
			l.transport.pool.dropData(l)
			l.overrun = true
			return
		}
		l.charged += more
	}
	l.dst = slices.Grow(l.dst, want-got)
}
