package boxcarrpc

import (
	"sync"
	"sync/atomic"
)

// maxKeptBuffer is the largest buffer that is kept for another use.
const maxKeptBuffer = 64 << 10

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, 4<<10)
	return &b
}}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
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
