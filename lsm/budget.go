package lsm

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/bloom"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// Budget is a memory limit shared by several stores, for memtables (including those
// pinned by snapshots and iterators), filter pages and the buffers of tables that are
// being written. It has fixed parts:
//
//   - 3/8 for memtables that are filled or wait for a flush: two for each of n stores.
//     A memtable is full at 1/(8n) of the budget, or at Options.MemtableBytes if that is
//     less, and takes up to half as much again.
//   - 3/8 for memtables pinned by snapshots and iterators. A snapshot or iterator that
//     exceeds this part fails with ErrBudget. Flushes and merges use the rest of it
//     for their buffers, and then reduce the part for filter pages: at most 2 MiB for each
//     table being written, whatever its size, or 8 MiB for a few large ones.
//   - 2/8 for the indexes of open tables, their tags, which take at most a quarter of this
//     part, and for filter pages and their indexes. What the former leave is divided among
//     the stores every second and whenever a store is opened or closed: in proportion to the
//     load of their filters, but at most what their filters need and Options.FilterBytes. The
//     rest is divided evenly.
//
// The size of memtables adapts when a store is opened or closed: a memtable that is
// then too large is flushed, and spare memory is released. A batch larger than a
// memtable exceeds the budget until it is flushed, which starts at once.
//
// A Budget is safe for concurrent use. A nil *Budget has no limit.
type Budget struct {
	bytes   int64
	stores  atomic.Int64
	used    atomic.Int64 // by memtables and spare memory for the next ones
	pinned  atomic.Int64 // part of used: pinned memtables, counted as if full
	merging atomic.Int64 // by tables being written
	tables  atomic.Int64 // by indexes and tags of open tables
	tags    table.TagLimit

	mu struct {
		sync.Mutex
		shares  []*storeShare
		divided time.Time
	}
}

// NewBudget returns a budget of the given size in bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{bytes: bytes, tags: table.TagLimit{Bytes: bytes / 16}}
}

// BudgetStats is the use of a Budget, in bytes.
type BudgetStats struct {
	Bytes     int64 // the budget
	Memtables int64 // including pinned ones, spare memory and sort buffers of flushes
	Pinned    int64 // part of Memtables, counted as if full
	Merges    int64 // buffers of tables being written by flushes and merges
	Filters   int64 // resident pages, their indexes, and those of open tables
}

// Stats returns the memory use of all stores.
func (b *Budget) Stats() BudgetStats {
	s := BudgetStats{Bytes: b.bytes, Memtables: b.used.Load(), Pinned: b.pinned.Load(), Merges: b.merging.Load(), Filters: b.tables.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, share := range b.mu.shares {
		filters := share.filters.Stats()
		s.Filters += filters.IndexBytes + filters.ResidentBytes
	}
	return s
}

// grow adds memory of memtables.
func (b *Budget) grow(bytes int64) {
	if b != nil {
		b.used.Add(bytes)
	}
}

// account returns the functions that count the memory of memtables.
func (b *Budget) account() memtable.Account {
	if b == nil {
		return memtable.Account{}
	}
	return memtable.Account{Grow: b.grow, Pin: b.pin, Unpin: b.unpin}
}

// Limits of Options.MemtableBytes.
const (
	minMemtableBytes = 4 << 10
	maxMemtableBytes = 1 << 30
)

// memtableBytes returns the size of a memtable, at most want.
func (b *Budget) memtableBytes(want int64) int64 {
	if b == nil {
		return want
	}
	return max(minMemtableBytes, min(want, b.bytes/8/max(1, b.stores.Load())))
}

// merge adds memory of a table being written; negative bytes release it.
func (b *Budget) merge(bytes int64) {
	if b != nil {
		b.merging.Add(bytes)
		b.divide(time.Now(), true)
	}
}

// mergesFit reports whether a table may be written with large buffers of the given size:
// half of the part for filters remains even if all of the other part is pinned.
func (b *Budget) mergesFit(bytes int64) bool {
	return b == nil || b.merging.Load()+bytes <= b.bytes/8
}

// table adds memory of the index and the tags of an open table; negative bytes release it.
func (b *Budget) table(bytes int64) {
	if b != nil {
		b.tables.Add(bytes)
	}
}

// pinnable returns the part for pinned memtables.
func (b *Budget) pinnable() int64 { return b.bytes * 3 / 8 }

// pin reserves memory for a pinned memtable, and reports whether there was enough.
func (b *Budget) pin(bytes int64) bool {
	pinned := b.pinned.Add(bytes)
	if pinned > b.pinnable() {
		b.pinned.Add(-bytes)
		return false
	}
	if pinned+b.merging.Load() > b.pinnable() {
		b.divide(time.Now(), true)
	}
	return true
}

func (b *Budget) pinnedBytes() int64 {
	if b == nil {
		return 0
	}
	return b.pinned.Load()
}

func (b *Budget) unpin(bytes int64) { b.pinned.Add(-bytes) }

// divideInterval is the interval at which the filter memory is divided.
const divideInterval = time.Second

// storeShare is a store's share of a Budget. Guarded by Budget.mu.
type storeShare struct {
	filters *bloom.Manager
	most    int64         // Options.FilterBytes
	probes  func() uint64 // of the present filters since they were opened
	resized func()        // called when the size of memtables has changed

	probed uint64  // as of the last division
	load   float64 // probes between divisions, decaying
}

// join adds a store.
func (b *Budget) join(s *storeShare) {
	if b == nil {
		s.filters.SetBudget(s.most)
		return
	}
	b.resize(1, func(shares []*storeShare) []*storeShare { return append(shares, s) })
}

// leave removes a store whose filters are dropped.
func (b *Budget) leave(s *storeShare) {
	if b == nil {
		return
	}
	b.resize(-1, func(shares []*storeShare) []*storeShare {
		return slices.DeleteFunc(shares, func(other *storeShare) bool { return other == s })
	})
}

// resize changes the number of stores and the list of shares, and makes all stores
// adapt.
func (b *Budget) resize(stores int64, change func([]*storeShare) []*storeShare) {
	b.stores.Add(stores)
	b.mu.Lock()
	b.mu.shares = change(b.mu.shares)
	shares := slices.Clone(b.mu.shares)
	b.mu.Unlock()
	for _, s := range shares {
		s.resized() // takes locks of its store, so not under mu
	}
	b.divide(time.Now(), true)
}

// divide divides the filter memory among the stores, if that is due or something has
// changed.
func (b *Budget) divide(now time.Time, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := now.Sub(b.mu.divided) >= divideInterval
	if !due && !changed {
		return
	}
	needs := make([]filterNeed, len(b.mu.shares))
	for i, s := range b.mu.shares {
		if due {
			probes := s.probes()
			if probes > s.probed { // else tables were removed with their counts
				s.load += float64(probes - s.probed)
			}
			s.probed, s.load = probes, s.load/2
		}
		all := s.filters.Stats()
		needs[i] = filterNeed{load: s.load, all: min(s.most, all.IndexBytes+all.PageBytes), most: s.most}
	}
	if due {
		b.mu.divided = now
	}
	over := max(0, b.pinned.Load()+b.merging.Load()-b.pinnable())
	parts := divideFilters(max(0, b.bytes/4-over-b.tables.Load()), needs)
	// Reduce shares first, so that the sum never exceeds the total.
	for _, gains := range []bool{false, true} {
		for i, s := range b.mu.shares {
			if before := s.filters.Stats().BudgetBytes; parts[i] != before && parts[i] > before == gains {
				s.filters.SetBudget(parts[i])
			}
		}
	}
}

// filterNeed is the input of divideFilters for one store.
type filterNeed struct {
	load      float64 // rate of probes
	all, most int64   // bytes: size of all its filters; limit
}

// divideFilters divides bytes among stores in proportion to their loads, up to the size
// of each store's filters. A store's weight is at least a tenth of the average load, so
// that an idle store is not cold. The rest is divided evenly, up to each store's limit,
// as space for future filters.
func divideFilters(bytes int64, needs []filterNeed) []int64 {
	parts := make([]int64, len(needs))
	average := 0.0
	for _, n := range needs {
		average += n.load / float64(len(needs))
	}
	weights, room := make([]float64, len(needs)), make([]int64, len(needs))
	for i, n := range needs {
		weights[i], room[i] = max(n.load, average/10, 1), n.all
	}
	bytes -= distribute(bytes, weights, room, parts)
	for i, n := range needs {
		weights[i], room[i] = 1, n.most-parts[i]
	}
	distribute(bytes, weights, room, parts)
	return parts
}

// distribute adds bytes to parts in proportion to weights, limited by room, and returns the
// number of bytes added.
func distribute(bytes int64, weights []float64, room, parts []int64) (distributed int64) {
	open := make([]int, len(parts))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		sum := 0.0
		for _, i := range open {
			sum += weights[i]
		}
		rest := float64(bytes - distributed)
		share := func(i int) int64 { return int64(rest * weights[i] / sum) }
		full := func(i int) bool { return room[i] <= share(i) }
		some := slices.ContainsFunc(open, full)
		open = slices.DeleteFunc(open, func(i int) bool {
			if some && !full(i) {
				return false
			}
			n := min(room[i], share(i))
			parts[i] += n
			distributed += n
			return true
		})
	}
	return distributed
}
