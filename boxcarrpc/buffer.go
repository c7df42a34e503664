package boxcarrpc

import "sync"

const (
	newBuffer     = 256      // bytes
	maxKeptBuffer = 64 << 10 // the largest that is kept for another use
)

// Small requests have buffers of their own, so that many of them do not hold the
// memory of large ones.
var smallBuffers, largeBuffers = sync.Pool{New: newRequestBuffer}, sync.Pool{New: newRequestBuffer}

func newRequestBuffer() any {
	b := make([]byte, 0, newBuffer)
	return &b
}

// requestBuffer returns a buffer for a request of this size.
func requestBuffer(size int) *[]byte {
	if size <= smallRequest {
		return smallBuffers.Get().(*[]byte)
	}
	return largeBuffers.Get().(*[]byte)
}

func keepRequestBuffer(b *[]byte) {
	switch {
	case cap(*b) > maxKeptBuffer:
		return
	case cap(*b) <= smallRequest:
		*b = (*b)[:0]
		smallBuffers.Put(b)
	default:
		*b = (*b)[:0]
		largeBuffers.Put(b)
	}
}
