package bloom

import (
	"sync/atomic"

	"docstore/internal/stripe"
)

// counters count answers. A filter has one for each stripe, away from what look-ups
// only read, so that goroutines do not wait for each other. Each look-up adds to one
// number.
type counters struct {
	no     atomic.Uint64
	maybe  atomic.Uint64
	absent atomic.Uint64
	missed atomic.Uint64
	_      [stripe.LineBytes - 4*8]byte
}

// sample counts the look-ups that asked a page, since the Manager looked last:
// all of the first few, then one in sampleInterval, which counts for all of those.
// So processors do not wait for each other where many ask the few pages of a
// small table, and nothing is missed where few ask the many of a large one.
type sample struct {
	no     atomic.Uint32
	maybe  atomic.Uint32 // in memory or not
	missed atomic.Uint32
}

const (
	sampleAll      = 64
	sampleInterval = 32
)

// count counts a look-up, which is the nth of its kind.
func count(c *atomic.Uint32, n uint64) {
	if c.Load() < sampleAll {
		c.Add(1)
	} else if n%sampleInterval == 0 {
		c.Add(sampleInterval)
	}
}

// MayContain tells whether the table may contain a key with the given hash. If
// it is false the key was not added; if it is true the table has to be asked. A
// caller that then finds that it has no such key reports so by Missed.
func (f *Filter) MayContain(h Hash, key []byte) bool { return f.Probe(key).MayContain(h) }

// Probe is a look-up under way: it knows the page to ask. One who has many keys to
// look up finds the pages of all, then fetches what will be asked of all of
// them, and then asks: the processor fetches them side by side.
type Probe struct {
	filter *Filter
	at     int   // of the page; -1 if the filter has none
	page   *page // nil if it is not in memory
}

// Probe begins a look-up of a key.
func (f *Filter) Probe(key []byte) Probe {
	if len(f.pages) == 0 {
		return Probe{filter: f, at: -1}
	}
	i := f.index.find(key)
	return Probe{f, i, f.pages[i].Load()}
}

// Prefetch has the processor fetch what MayContain will look at.
func (p Probe) Prefetch(h Hash) {
	if p.page != nil {
		p.page.prefetch(h, p.filter.hashes)
	}
}

// MayContain is that of the filter, for the hash of the key the probe is of.
func (p Probe) MayContain(h Hash) bool {
	f := p.filter
	c := &f.counters[stripe.Own()]
	switch {
	case p.at < 0:
		c.no.Add(1)
		return false
	case p.page == nil:
		count(&f.samples[p.at].maybe, c.absent.Add(1))
		return true
	case p.page.mayContain(h, f.hashes):
		count(&f.samples[p.at].maybe, c.maybe.Add(1))
		return true
	default:
		count(&f.samples[p.at].no, c.no.Add(1))
		return false
	}
}

// Missed reports that MayContain was true for a key which the table turned out
// not to have: because the page was not in memory, or by a false positive. That
// is how the ranking learns what a page would be good for that is not in memory.
// It costs less than a look-up and takes no lock.
func (f *Filter) Missed(key []byte) {
	if len(f.pages) > 0 {
		c := &f.counters[stripe.Own()]
		count(&f.samples[f.index.find(key)].missed, c.missed.Add(1))
	}
}

// FilterStats describe a filter: what it is, what of it is in memory, and what
// it has answered since it was opened.
type FilterStats struct {
	Keys          uint64
	Pages         int
	PageBytes     int64 // of all pages
	IndexBytes    int64 // in memory, always
	ResidentPages int
	ResidentBytes int64 // of the pages in memory

	Probes uint64 // calls of MayContain
	No     uint64 // that spared a look-up in the table
	Absent uint64 // that were answered "maybe" because the page was not in memory
	Missed uint64 // that were answered "maybe" though the table has no such key, as reported
}

// Stats returns the figures of the filter. While look-ups go on, or pages come
// and go, they are of slightly different moments.
func (f *Filter) Stats() FilterStats {
	s := FilterStats{
		Keys:       f.keys,
		Pages:      len(f.pages),
		IndexBytes: f.index.memory(),
	}
	for i := range f.pages {
		size := int64(f.index.entries[i].bytes)
		s.PageBytes += size
		if f.pages[i].Load() != nil {
			s.ResidentPages++
			s.ResidentBytes += size
		}
	}
	for i := range f.counters {
		c := &f.counters[i]
		no, maybe, absent := c.no.Load(), c.maybe.Load(), c.absent.Load()
		s.No += no
		s.Absent += absent
		s.Missed += c.missed.Load()
		s.Probes += no + maybe + absent
	}
	return s
}
