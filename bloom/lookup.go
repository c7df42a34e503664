package bloom

import (
	"sync/atomic"

	"docstore/internal/stripe"
)

// counters count answers. A filter has one per stripe, on its own cache line, so that
// goroutines do not contend. Each lookup increments one counter.
type counters struct {
	no          atomic.Uint64
	maybe       atomic.Uint64
	absent      atomic.Uint64
	bypassed    atomic.Uint64
	missed      atomic.Uint64
	streakStart atomic.Uint64 // value of maybe at the last wrong "maybe" or the last "no"
	_           [stripe.LineBytes - 6*8]byte
}

// bypassAfter is the number of consecutive correct "maybe" answers after which the
// filter is bypassed. It bounds the cost of bypassing: one unnecessary table search per
// bypassAfter lookups.
const bypassAfter = 1024

// bypass reports whether to answer "maybe" without reading the filter's bits. For
// example, reading the oldest table's filter is only a cache miss when all keys exist.
func (c *counters) bypass() bool {
	start := c.streakStart.Load() // before maybe, which is never less
	return c.maybe.Load()-start >= bypassAfter
}

// resetStreak ends the bypass.
func (c *counters) resetStreak() {
	if maybe := c.maybe.Load(); c.streakStart.Load() != maybe {
		c.streakStart.Store(maybe)
	}
}

// sample counts the lookups of a page since the last pass of the Manager: the first
// sampleAll, then every sampleInterval-th with weight sampleInterval. This avoids
// contention on the few pages of a small table and loses nothing on the many rarely
// used pages of a large one.
type sample struct {
	no     atomic.Uint32
	maybe  atomic.Uint32 // page in memory or not
	missed atomic.Uint32
}

const (
	sampleAll      = 64
	sampleInterval = 32
)

// count counts the nth lookup of its kind.
func count(c *atomic.Uint32, n uint64) {
	if c.Load() < sampleAll {
		c.Add(1)
	} else if n%sampleInterval == 0 {
		c.Add(sampleInterval)
	}
}

// MayContain reports whether the table may contain the key with hash h, from the bits
// of the page if it is in memory. If it returns false, the key was not added. If it
// returns true, the caller must search the table, and call Missed if the key is not
// there.
func (f *Filter) MayContain(h Hash, key []byte) bool {
	return f.locate(&f.counters[stripe.Own()], key).ask(h)
}

// Missed calls Probe.Missed for key.
func (f *Filter) Missed(key []byte) { f.locate(&f.counters[stripe.Own()], key).Missed(key) }

// Probe is a lookup in progress. For many keys, create all probes, call Prefetch on all of
// them, then MayContain: the cache misses overlap.
type Probe struct {
	filter   *Filter
	counters *counters // the same stripe for MayContain and Missed
	at       int       // page number, noPage or bypassed
	page     *page     // nil if not in memory
}

// Values of Probe.at that are not the number of a page.
const (
	noPage   = -1 // the filter has no pages
	bypassed = -2 // the page was not located; the answer is "maybe"
)

// Probe begins a lookup of key.
func (f *Filter) Probe(key []byte) Probe { return f.probe(&f.counters[stripe.Own()], key) }

func (f *Filter) probe(c *counters, key []byte) Probe {
	if !c.bypass() {
		return f.locate(c, key)
	}
	if c.bypassed.Add(1)%sampleInterval == 0 { // counted for all
		f.samples[f.index.find(key)].maybe.Add(sampleInterval)
	}
	return Probe{f, c, bypassed, nil}
}

// locate returns a probe with its page.
func (f *Filter) locate(c *counters, key []byte) Probe {
	if len(f.pages) == 0 {
		return Probe{f, c, noPage, nil}
	}
	i := f.index.find(key)
	return Probe{f, c, i, f.pages[i].Load()}
}

// Prefetch prefetches the cache lines that MayContain reads.
func (p Probe) Prefetch(h Hash) {
	if p.page != nil {
		p.page.prefetch(h, p.filter.hashes)
	}
}

// MayContain is Filter.MayContain for the probe's key; h must be its hash. After 1,024
// consecutive correct "maybe" answers it returns true without reading the filter, until
// the next call of Missed.
func (p Probe) MayContain(h Hash) bool { return p.at == bypassed || p.ask(h) }

// ask is MayContain of a probe that has located its page.
func (p Probe) ask(h Hash) bool {
	f, c := p.filter, p.counters
	switch {
	case p.at == noPage:
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
		c.resetStreak()
		return false
	}
}

// Missed reports that MayContain returned true but the table does not have the probe's key:
// the page was not in memory, a false positive, or the filter was bypassed. The ranking
// learns from it how useful a page would be in memory. It takes no lock.
func (p Probe) Missed(key []byte) {
	f, c := p.filter, p.counters
	if p.at == bypassed {
		p = f.locate(c, key)
	}
	if p.at != noPage {
		count(&f.samples[p.at].missed, c.missed.Add(1))
		c.resetStreak()
	}
}

// FilterStats describes a filter, its resident pages and its answers since it was
// opened.
type FilterStats struct {
	Keys          uint64
	Pages         int
	PageBytes     int64 // sum over all pages
	IndexBytes    int64 // always in memory
	ResidentPages int
	ResidentBytes int64 // of the pages in memory

	Probes   uint64 // calls of MayContain
	No       uint64 // answers "no"; each saved a table lookup
	Absent   uint64 // answers "maybe" because the page was not in memory
	Bypassed uint64 // answers "maybe" without reading the page
	Missed   uint64 // answers "maybe" for keys that the table does not have, as reported
}

// Stats returns the filter's statistics. They are not a consistent snapshot.
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
		no, absent, bypassed := c.no.Load(), c.absent.Load(), c.bypassed.Load()
		s.No += no
		s.Absent += absent
		s.Bypassed += bypassed
		s.Missed += c.missed.Load()
		s.Probes += no + c.maybe.Load() + absent + bypassed
	}
	return s
}
