package segment

import (
	"slices"
	"sync"
)

// Scratch is temporary memory for one call.
type Scratch struct{ Bytes []byte }

// maxScratchBytes bounds the memory that is kept for the next call.
const maxScratchBytes = 1 << 20

var scratchPool = sync.Pool{New: func() any { return &Scratch{Bytes: make([]byte, 0, 16<<10)} }}

// GetScratch returns memory that the caller releases.
func GetScratch() *Scratch { return scratchPool.Get().(*Scratch) }

// Release keeps the memory for the next call.
func (s *Scratch) Release() {
	if cap(s.Bytes) <= maxScratchBytes {
		scratchPool.Put(s)
	}
}

// Sized returns n bytes with arbitrary content.
func (s *Scratch) Sized(n int) []byte {
	s.Bytes = slices.Grow(s.Bytes[:0], n)[:n]
	return s.Bytes
}
