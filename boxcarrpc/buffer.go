package boxcarrpc

import (
	"sync"
	"sync/atomic"
)

const (
	newBuffer     = 256      // bytes
	maxKeptBuffer = 64 << 10 // the largest that is kept for another use
)

var requestBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, newBuffer)
	return &b
}}

// requestBuffer is for a request.
func requestBuffer() *[]byte { return requestBuffers.Get().(*[]byte) }

func keepRequestBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		requestBuffers.Put(b)
	}
}

// A budget bounds bytes that several parties hold together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take takes n bytes if there is room for them.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }
