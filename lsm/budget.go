package lsm

import "sync/atomic"

// Budget is memory that several stores share: memtables, those that snapshots
// and iterators hold on to included, and filter pages. It is divided in fixed
// parts, so that no store can take what another counts on:
//
//   - 3/8 for the memtables being filled or waiting to be written: of each of n
//     stores two, which are filled up to 1/(8n) of the budget, or less if its
//     Options.MemtableBytes say so, and take up to half as much again;
//   - 3/8 for memtables that snapshots and iterators pin. One that would exceed
//     this is refused with ErrBudget;
//   - 2/8 for filter pages: a store that is opened takes its Options.FilterBytes,
//     but at most half of what is left, and gives them back when it is closed.
//
// The size of memtables adapts when a store is opened or closed, with the next
// write. What exceeds the budget is a single batch larger than a memtable, until
// it has been written to a table.
//
// A Budget may be used by many goroutines. The nil *Budget has no bound.
type Budget struct {
	bytes  int64
	stores atomic.Int64
	used   atomic.Int64 // by memtables
	pinned atomic.Int64 // of those, by ones that are pinned, as if they were full
	filter atomic.Int64 // taken by stores for filter pages
}

// NewBudget returns a budget of the given bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Bytes is the size of the budget.
func (b *Budget) Bytes() int64 { return b.bytes }

// join counts one more store, or one less.
func (b *Budget) join(stores int64) {
	if b != nil {
		b.stores.Add(stores)
	}
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

// takeFilter takes memory for filter pages; the store gives it back.
func (b *Budget) takeFilter(want int64) int64 {
	if b == nil {
		return want
	}
	for {
		taken := b.filter.Load()
		grant := min(want, max(0, b.bytes/4-taken)/2)
		if b.filter.CompareAndSwap(taken, taken+grant) {
			return grant
		}
	}
}

func (b *Budget) giveFilter(bytes int64) {
	if b != nil {
		b.filter.Add(-bytes)
	}
}

// pin counts a memtable that will not go before a snapshot does, unless there
// is no room for it.
func (b *Budget) pin(bytes int64) bool {
	if b == nil {
		return true
	}
	if b.pinned.Add(bytes) > b.bytes*3/8 {
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

// budgetShare is what one store has taken.
type budgetShare struct{ filterBytes int64 }

func (s *budgetShare) take(b *Budget, filterBytes int64) {
	b.join(1)
	s.filterBytes = b.takeFilter(filterBytes)
}

func (s *budgetShare) release(b *Budget) {
	b.giveFilter(s.filterBytes)
	b.join(-1)
}
