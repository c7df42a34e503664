package lsm

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A chunk of an arena is a quarter of what there is already, within these bounds:
// a store that holds little takes little, and no store leaves much unused.
const (
	minChunkBytes = 2 << 10
	maxChunkBytes = 128 << 10
)

// arena hands out runs of elements that stay where they are for as long as the
// arena lives. T holds no pointers, so the garbage collector sees a few chunks
// and nothing of what is in them.
//
// One goroutine allocates; any number may look up refs that reached them
// through an atomic store made after alloc returned: the table of chunks that
// they then load holds the chunk, as chunks are only ever added.
type arena[T any] struct {
	chunks atomic.Pointer[[][]T]
	used   int // elements handed out of the last ordinary chunk
	last   int // its index
	handed int // elements handed out of all chunks

	elementBytes int
	spare        *sync.Pool // of chunks of the largest ordinary size
	grown        func(bytes int)
}

// The chunks of memtables that are gone serve those to come: so a store that is
// written to leaves the garbage collector next to nothing to do, and the kernel no
// pages to hand out anew. What is not taken for a while the collector drops.
var spareNodes, spareBytes sync.Pool

// ref names a run of an arena: the chunk's number in the upper half, the index
// of the run's first element in the lower.
type ref uint64

// newArena returns an empty arena. It calls grown with what it allocates.
func newArena[T any](elementBytes int, spare *sync.Pool, grown func(bytes int)) *arena[T] {
	a := &arena[T]{last: -1, elementBytes: elementBytes, spare: spare, grown: grown}
	a.chunks.Store(new([][]T))
	return a
}

// alloc returns n zeroed elements.
func (a *arena[T]) alloc(n int) (ref, []T) {
	chunks := *a.chunks.Load()
	a.handed += n
	if a.last >= 0 && n <= len(chunks[a.last])-a.used {
		r := ref(a.last)<<32 | ref(a.used)
		a.used += n
		return r, chunks[a.last][a.used-n : a.used : a.used]
	}
	size := min(max(a.handed/4, minChunkBytes/a.elementBytes), maxChunkBytes/a.elementBytes)
	// A large run gets a chunk of its own, so that what is left of the last
	// ordinary chunk is not wasted.
	own := n > size/4
	if own {
		size = n
	}
	a.grown(size * a.elementBytes)
	index := len(chunks)
	more := append(slices.Clip(chunks), a.newChunk(size)) // readers keep what they have
	a.chunks.Store(&more)
	if !own {
		a.last, a.used = index, n
	}
	return ref(index) << 32, more[index][:n:n]
}

func (a *arena[T]) newChunk(size int) []T {
	if size == maxChunkBytes/a.elementBytes {
		if chunk, ok := a.spare.Get().(*[]T); ok {
			clear(*chunk)
			return *chunk
		}
	}
	return make([]T, size)
}

// release hands the chunks on. Nobody may use the arena any more, nor what at
// returned.
func (a *arena[T]) release() {
	for _, chunk := range *a.chunks.Swap(new([][]T)) {
		if len(chunk) == maxChunkBytes/a.elementBytes {
			a.spare.Put(&chunk)
		}
	}
}

// at returns the elements of a chunk from the ref on.
func (a *arena[T]) at(r ref) []T {
	return (*a.chunks.Load())[r>>32][uint32(r):]
}
