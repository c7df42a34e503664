package codec

import "sync"

// maxBufferBytes is the maximum size of a buffer that is kept for the next call.
const maxBufferBytes = 1 << 20

// buffer is temporary memory for one call.
type buffer struct{ bytes []byte }

var buffers = sync.Pool{New: func() any { return &buffer{bytes: make([]byte, 0, 16<<10)} }}

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if cap(b.bytes) <= maxBufferBytes {
		buffers.Put(b)
	}
}
