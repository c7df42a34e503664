package offheap

// Region is memory of a fixed size.
type Region struct {
	bytes  []byte
	mapped []byte // nil: bytes are of the heap
}

// leastBytes is the size from which on a region is worth system calls.
const leastBytes = 64 << 10

// New returns a region of zeros, of which only what is touched takes memory. Behind the
// first sparseBytes it is touched by the huge page, where there are any. A small
// region, or one that the system refuses to map, is a slice of the heap.
func New(bytes, sparseBytes int) Region {
	if bytes >= leastBytes {
		if r := mapRegion(bytes, sparseBytes); r.mapped != nil {
			return r
		}
	}
	return Region{bytes: make([]byte, bytes)}
}

// Bytes is the memory. It holds no pointers.
func (r Region) Bytes() []byte { return r.bytes }

// Release gives the memory back, once. Nobody may use it any more.
func (r Region) Release() {
	if r.mapped != nil {
		unmap(r.mapped)
	}
}
