package offheap

// Region is memory of a fixed size.
type Region struct {
	bytes  []byte
	mapped []byte // nil: bytes are of the heap
	sparse int    // bytes before the first huge page
}

const (
	// leastBytes is the size from which on a region is worth system calls.
	leastBytes = 64 << 10
	pageBytes  = 4 << 10
	// hugeBytes is the size of a huge page. A system where it differs loses nothing.
	hugeBytes = 2 << 20
)

// New returns a region of zeros, of which only what is touched takes memory. Behind the
// first sparseBytes it is touched by the huge page, where there are any. A small
// region, or one that the system refuses to map, is a slice of the heap.
func New(bytes, sparseBytes int) Region {
	if bytes >= leastBytes {
		if r := mapRegion(bytes, sparseBytes); r.mapped != nil {
			return r
		}
	}
	return Region{bytes: make([]byte, bytes), sparse: bytes}
}

// Bytes is the memory. It holds no pointers.
func (r Region) Bytes() []byte { return r.bytes }

// Touched returns how many bytes of memory the region takes when its first end bytes
// have been touched.
func (r Region) Touched(end int) int {
	if end <= r.sparse {
		return min(roundUp(end, pageBytes), len(r.bytes))
	}
	return min(r.sparse+roundUp(end-r.sparse, hugeBytes), len(r.bytes))
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// Release gives the memory back, once. The region must not be used afterwards.
func (r Region) Release() {
	if r.mapped != nil {
		unmap(r.mapped)
	}
}
