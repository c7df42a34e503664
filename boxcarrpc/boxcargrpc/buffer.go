package boxcargrpc

import "sync"

// maxKept is the maximum size of a buffer that is reused.
const maxKept = 1 << 20

// reuse returns an empty buffer for the next message of a stream.
func reuse(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// buffers has *[]byte for the requests and responses of unary calls.
var buffers sync.Pool

func takeBuffer() *[]byte {
	if b, ok := buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func keepBuffer(b *[]byte) {
	*b = reuse(*b)
	buffers.Put(b)
}
