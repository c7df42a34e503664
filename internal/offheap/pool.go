package offheap

import "sync"

// maxSpare is how many regions a Pool keeps.
const maxSpare = 2

// Pool keeps regions that were released for those who need one of the same size next: so
// the system has no pages to find and to clear. A virtual machine's host may even have
// taken them back. The zero Pool is empty; the nil Pool keeps nothing. It may be used by
// many goroutines.
type Pool struct {
	mu struct {
		sync.Mutex
		spare  []Region // the oldest first
		closed bool
	}
}

// New returns a region as New does, but for what is in it: anything, if fresh is false.
func (p *Pool) New(bytes, sparseBytes int) (r Region, fresh bool) {
	if p == nil {
		return New(bytes, sparseBytes), true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.mu.spare {
		if len(r.bytes) == bytes {
			p.mu.spare = append(p.mu.spare[:i:i], p.mu.spare[i+1:]...)
			return r, false
		}
	}
	return New(bytes, sparseBytes), true
}

// Release releases a region, now or later, once. Nobody may use it any more.
func (p *Pool) Release(r Region) {
	if p == nil {
		r.Release()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || r.mapped == nil {
		r.Release()
		return
	}
	if p.mu.spare = append(p.mu.spare, r); len(p.mu.spare) > maxSpare {
		p.mu.spare[0].Release()
		p.mu.spare = p.mu.spare[1:]
	}
}

// Close gives back what is kept, and has what is released later given back at once.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, r := range p.mu.spare {
		r.Release()
	}
	p.mu.spare = nil
}
