package lsm

import "sync/atomic"

// The chunks of an arena grow from the first size to the last, so that a store
// that holds little takes little.
const (
	arenaFirstChunk = 1 << 12 // elements
	arenaLastChunk  = 1 << 17
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
	grown  func(elements int)
}

// ref names a run of an arena: the chunk's number in the upper half, the index
// of the run's first element in the lower.
type ref uint64

func newArena[T any](grown func(elements int)) *arena[T] {
	a := &arena[T]{last: -1, grown: grown}
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
	size := arenaFirstChunk
	if a.last >= 0 {
		size = min(2*len(chunks[a.last]), arenaLastChunk)
	}
	// A large run gets a chunk of its own, so that what is left of the last
	// ordinary chunk is not wasted.
	own := n > size/4
	if own {
		size = n
	}
	a.grown(size)
	grown := append(chunks[:len(chunks):len(chunks)], make([]T, size))
	a.chunks.Store(&grown)
	index := len(grown) - 1
	if !own {
		a.last, a.used = index, n
	}
	return ref(index) << 32, grown[index][:n:n]
}

// at returns the elements of a chunk from the ref on.
func (a *arena[T]) at(r ref) []T {
	return (*a.chunks.Load())[r>>32][uint32(r):]
}
