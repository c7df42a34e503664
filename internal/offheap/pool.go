package offheap

import (
	"math"
	"sync"
)

// maxSpare is how many regions a Pool keeps: those of one memtable.
const maxSpare = 2

// Pool keeps released regions, to hand them out when a region of the same size is
// needed. The kernel then has no pages to find and to clear; the host of a virtual
// machine may even have taken them back. The zero Pool is empty; the nil Pool keeps
// nothing. It may be used by many goroutines.
type Pool struct {
	// Limit returns the most bytes that a kept region may take. Two regions take at most
	// half as much again. Nil is no limit.
	Limit func() int64
	// Grown is called with the number of bytes by which the memory of the kept regions
	// has changed. Nil ignores it.
	Grown func(bytes int64)

	mu struct {
		sync.Mutex
		spare  []spareRegion // the oldest first
		bytes  int64         // touched, of all
		closed bool
	}
}

type spareRegion struct {
	Region
	touched int
}

// New returns a region as New does, except that its first touched bytes take memory
// already and have any content.
func (p *Pool) New(bytes, sparseBytes int) (r Region, touched int) {
	if p == nil {
		return New(bytes, sparseBytes), 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.mu.spare {
		if len(s.bytes) == bytes {
			p.take(i)
			return s.Region, s.touched
		}
	}
	return New(bytes, sparseBytes), 0
}

// Release releases a region of which the first bytes have been touched, now or later,
// once. The region must not be used afterwards.
func (p *Pool) Release(r Region, touched int) {
	if p == nil {
		r.Release()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := int64(math.MaxInt64)
	if p.Limit != nil {
		limit = p.Limit()
	}
	if p.mu.closed || r.mapped == nil || int64(touched) > limit {
		r.Release()
		return
	}
	p.mu.spare = append(p.mu.spare, spareRegion{r, touched})
	p.changed(int64(touched))
	for len(p.mu.spare) > maxSpare || p.mu.bytes-limit > limit/2 {
		p.drop()
	}
}

// Clear releases the kept regions, as is right when the limit becomes smaller.
func (p *Pool) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.mu.spare) > 0 {
		p.drop()
	}
}

// Close releases the kept regions. What is released afterwards is not kept.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.Clear()
}

// drop releases the oldest region. Called under mu.
func (p *Pool) drop() {
	oldest := p.mu.spare[0]
	p.take(0)
	oldest.Release()
}

// take takes a region off the list. Called under mu.
func (p *Pool) take(i int) {
	p.changed(-int64(p.mu.spare[i].touched))
	p.mu.spare = append(p.mu.spare[:i:i], p.mu.spare[i+1:]...)
}

// changed is called under mu.
func (p *Pool) changed(bytes int64) {
	p.mu.bytes += bytes
	if p.Grown != nil {
		p.Grown(bytes)
	}
}
