package queue

import (
	"slices"
	"sync"
)

// scratch is temporary memory for one call.
type scratch struct{ bytes []byte }

// maxScratchBytes bounds the memory that is kept for the next call.
const maxScratchBytes = 1 << 20

var scratchPool = sync.Pool{New: func() any { return &scratch{bytes: make([]byte, 0, 16<<10)} }}

func getScratch() *scratch { return scratchPool.Get().(*scratch) }

func (s *scratch) release() {
	if cap(s.bytes) <= maxScratchBytes {
		scratchPool.Put(s)
	}
}

// sized returns n bytes with arbitrary content.
func (s *scratch) sized(n int) []byte {
	s.bytes = slices.Grow(s.bytes[:0], n)[:n]
	return s.bytes
}
