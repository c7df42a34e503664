package offheap

import (
	"math"
	"sync"
)

// maxSpare is the number of regions that a Pool keeps: those of one memtable.
const maxSpare = 2

// Pool keeps released regions for reuse by a region of the same size. Reuse avoids page
// faults and clearing; on a virtual machine the host may even have reclaimed the pages.
// The zero Pool is empty; a nil Pool keeps nothing. It is safe for concurrent use.
type Pool struct {
	// Limit returns the maximum memory of a kept region. Two regions together take at
	// most half as much again. nil is no limit.
	Limit func() int64
	// Grown is called with each change of the memory of the kept regions in bytes. It
	// may be nil.
	Grown func(bytes int64)

	mu struct {
		sync.Mutex
		spare  []spareRegion // oldest first
		bytes  int64         // touched memory of all
		closed bool
	}
}

type spareRegion struct {
	Region
	touched int
}

// New is like the function New, except that the first touched bytes take memory already
// and have arbitrary contents.
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

// Release releases a region whose first touched bytes take memory, now or later. It
// must be called once, and the region not used afterwards.
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

// Clear releases the kept regions, for example when the limit has become smaller.
func (p *Pool) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.mu.spare) > 0 {
		p.drop()
	}
}

// Close releases the kept regions. Regions released later are not kept.
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

// take removes a region from the list. Called under mu.
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
