package lsm

import (
	"sync"
	"sync/atomic"
	"time"
)

// Budget is memory that several stores share: memtables, those that snapshots
// and iterators hold on to included, filter pages, and what merges build. It has fixed
// parts, so that no store can take what another counts on:
//
//   - 3/8 for the memtables being filled or waiting to be written: of each of n
//     stores two, which are filled up to 1/(8n) of the budget, or less if its
//     Options.MemtableBytes say so, and take up to half as much again;
//   - 3/8 for memtables that snapshots and iterators pin, and for the filters and
//     indexes of tables that merges are writing. A snapshot or iterator that would
//     exceed this is refused with ErrBudget; what merges need beyond it filters
//     yield for as long;
//   - 2/8 for filter pages, and the indexes of these. Every second, and whenever a
//     store is opened or closed, they are divided anew: each store gets as its
//     filters are asked, but not more than all of them take or its
//     Options.FilterBytes. What is left over all get alike.
//
// The size of memtables adapts when a store is opened or closed: a memtable that is
// too large then is flushed, and spare memory is released. A batch larger than a
// memtable exceeds the budget until it has been written to a table, which begins at
// once.
//
// A Budget may be used by many goroutines. The nil *Budget has no bound.
type Budget struct {
	bytes   int64
	stores  atomic.Int64
	used    atomic.Int64 // by memtables, and by spare memory for the next ones
	pinned  atomic.Int64 // of those, by ones that are pinned, as if they were full
	merging atomic.Int64 // by merges

	mu struct {
		sync.Mutex
		shares  []*storeShare
		divided time.Time
	}
}

// NewBudget returns a budget of the given bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Bytes is the size of the budget.
func (b *Budget) Bytes() int64 { return b.bytes }

// BudgetStats is where the memory of a Budget goes, in bytes.
type BudgetStats struct {
	Bytes     int64 // the budget
	Memtables int64 // pinned ones, spare memory and the sorting of keys by flushes included
	Pinned    int64 // of these, as if they were full
	Merges    int64 // filters and indexes of tables being written by merges
	Filters   int64 // pages in memory and their indexes
}

// Stats tells where the memory goes, of all stores.
func (b *Budget) Stats() BudgetStats {
	s := BudgetStats{Bytes: b.bytes, Memtables: b.used.Load(), Pinned: b.pinned.Load(), Merges: b.merging.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, share := range b.mu.shares {
		filters := share.filters.Stats()
		s.Filters += filters.IndexBytes + filters.ResidentBytes
	}
	return s
}

// grow counts memory of memtables.
func (b *Budget) grow(bytes int64) {
	if b != nil {
		b.used.Add(bytes)
	}
}

// memtableBytes bounds the size of a memtable.
func (b *Budget) memtableBytes(want int64) int64 {
	if b == nil {
		return want
	}
	return max(minMemtableBytes, min(want, b.bytes/8/max(1, b.stores.Load())))
}

// merge counts what a merge takes, and what it gives back as negative.
func (b *Budget) merge(bytes int64) {
	if b != nil {
		b.merging.Add(bytes)
		b.divide(time.Now(), true)
	}
}

// pin counts a memtable that will not go before a snapshot does, unless there
// is no room for it.
func (b *Budget) pin(bytes int64) bool {
	if b == nil {
		return true
	}
	if b.pinned.Add(bytes)+b.merging.Load() > b.bytes*3/8 {
		b.pinned.Add(-bytes)
		return false
	}
	return true
}

func (b *Budget) pinnedBytes() int64 {
	if b == nil {
		return 0
	}
	return b.pinned.Load()
}

func (b *Budget) unpin(bytes int64) {
	if b != nil {
		b.pinned.Add(-bytes)
	}
}
