package offheap

// Region is a fixed-size piece of memory.
type Region struct {
	bytes  []byte
	mapped []byte // nil: bytes are on the heap
	sparse int    // bytes before the first huge page
}

const (
	// leastBytes is the minimum size of a mapped region; smaller ones do not justify
	// system calls.
	leastBytes = 64 << 10
	pageBytes  = 4 << 10
	// hugeBytes is the size of a huge page. Another size on a system is harmless.
	hugeBytes = 2 << 20
)

// New returns a zeroed region, which takes memory when it is touched. After the first
// sparseBytes it uses huge pages if available. A small region, or one that the system
// refuses to map, is a slice of the heap.
func New(bytes, sparseBytes int) Region {
	if bytes >= leastBytes {
		if r := mapRegion(bytes, sparseBytes); r.mapped != nil {
			return r
		}
	}
	return Region{bytes: make([]byte, bytes), sparse: bytes}
}

// Bytes returns the memory. It must not hold pointers.
func (r Region) Bytes() []byte { return r.bytes }

// Touched returns the memory that the region takes when its first end bytes are
// touched.
func (r Region) Touched(end int) int {
	if end <= r.sparse {
		return min(roundUp(end, pageBytes), len(r.bytes))
	}
	return min(r.sparse+roundUp(end-r.sparse, hugeBytes), len(r.bytes))
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// Release frees the memory. It must be called once, and the region not used afterwards.
func (r Region) Release() {
	if r.mapped != nil {
		unmap(r.mapped)
	}
}
