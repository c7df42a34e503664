package bloom

import (
	"sync/atomic"

	"docstore/internal/stripe"
)

// counters count answers. A filter has one for each stripe, away from what look-ups
// only read, so that goroutines do not wait for each other. Each look-up adds to one
// number.
type counters struct {
	no       atomic.Uint64
	maybe    atomic.Uint64
	absent   atomic.Uint64
	presumed atomic.Uint64
	missed   atomic.Uint64
	doubted  atomic.Uint64 // what maybe was when it was last wrong to say so, or not said
	_        [stripe.LineBytes - 6*8]byte
}

// presumeAfter is how often a filter says "maybe" in turn, and rightly so, before it is
// presumed to go on. It bounds what presuming costs: one search in vain in as many
// look-ups.
const presumeAfter = 1024

// presumes tells whether the answer is known without the filter's bits. Those of the
// oldest table, when all keys exist, are nothing but a wait for memory.
func (c *counters) presumes() bool {
	doubted := c.doubted.Load() // before maybe, which is never less
	return c.maybe.Load()-doubted >= presumeAfter
}

// doubt has the filter asked again.
func (c *counters) doubt() {
	if maybe := c.maybe.Load(); c.doubted.Load() != maybe {
		c.doubted.Store(maybe)
	}
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

// MayContain tells whether the table may contain a key with the given hash, by a look at
// the bits if they are in memory. If it is false the key was not added; if it is true the
// table has to be asked. A caller that then finds that it has no such key reports so by
// Missed.
func (f *Filter) MayContain(h Hash, key []byte) bool { return f.Probe(key).ask(h) }

// Missed is that of a Probe of the key.
func (f *Filter) Missed(key []byte) { f.Probe(key).Missed() }

// Probe is a look-up under way: it knows the page to ask. One who has many keys to
// look up finds the pages of all, then fetches what will be asked of all of
// them, and then asks: the processor fetches them side by side.
type Probe struct {
	filter   *Filter
	counters *counters // whoever asks and whoever is doubted is the same
	at       int       // of the page; -1 if the filter has none
	page     *page     // nil if it is not in memory
}

// Probe begins a look-up of a key.
func (f *Filter) Probe(key []byte) Probe {
	c := &f.counters[stripe.Own()]
	if len(f.pages) == 0 {
		return Probe{f, c, -1, nil}
	}
	i := f.index.find(key)
	return Probe{f, c, i, f.pages[i].Load()}
}

// Prefetch has the processor fetch what MayContain will look at.
func (p Probe) Prefetch(h Hash) {
	if p.page != nil && !p.counters.presumes() {
		p.page.prefetch(h, p.filter.hashes)
	}
}

// MayContain is that of the filter, for the hash of the key the probe is of. But a filter
// that has answered "maybe" a thousand times in turn is presumed to do so again, without
// a look at its bits, until Missed tells otherwise.
func (p Probe) MayContain(h Hash) bool {
	if c := p.counters; p.page != nil && c.presumes() {
		count(&p.filter.samples[p.at].maybe, c.presumed.Add(1))
		return true
	}
	return p.ask(h)
}

func (p Probe) ask(h Hash) bool {
	f, c := p.filter, p.counters
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
		c.doubt()
		return false
	}
}

// Missed reports that MayContain was true for a key which the table turned out
// not to have: because the page was not in memory, by a false positive, or because that
// was presumed. That is how the ranking learns what a page would be good for that is not
// in memory. It takes no lock.
func (p Probe) Missed() {
	if p.at >= 0 {
		c := p.counters
		count(&p.filter.samples[p.at].missed, c.missed.Add(1))
		c.doubt()
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

	Probes   uint64 // calls of MayContain
	No       uint64 // that spared a look-up in the table
	Absent   uint64 // that were answered "maybe" because the page was not in memory
	Presumed uint64 // that were answered "maybe" because that had long been the answer
	Missed   uint64 // that were answered "maybe" though the table has no such key, as reported
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
		no, absent, presumed := c.no.Load(), c.absent.Load(), c.presumed.Load()
		s.No += no
		s.Absent += absent
		s.Presumed += presumed
		s.Missed += c.missed.Load()
		s.Probes += no + c.maybe.Load() + absent + presumed
	}
	return s
}
