package lsm

import (
	"slices"
	"time"

	"docstore/bloom"
)

// divideInterval is how often the memory for filters is divided anew.
const divideInterval = time.Second

// storeShare is a store's part of a Budget. Guarded by Budget.mu.
type storeShare struct {
	filters *bloom.Manager
	most    int64         // Options.FilterBytes
	probes  func() uint64 // of the filters there are, so far
	resized func()        // called when the size of memtables has changed

	probed uint64  // as of the last division
	load   float64 // probes between divisions; fades
}

// join adds a store.
func (b *Budget) join(s *storeShare) {
	if b == nil {
		s.filters.SetBudget(s.most)
		return
	}
	b.resize(1, func(shares []*storeShare) []*storeShare { return append(shares, s) })
}

// leave takes a store out, whose filters have gone.
func (b *Budget) leave(s *storeShare) {
	if b == nil {
		return
	}
	b.resize(-1, func(shares []*storeShare) []*storeShare {
		return slices.DeleteFunc(shares, func(other *storeShare) bool { return other == s })
	})
}

// resize changes the number of stores and the list of their shares, and has all stores
// adapt to that.
func (b *Budget) resize(stores int64, change func([]*storeShare) []*storeShare) {
	b.stores.Add(stores)
	b.mu.Lock()
	b.mu.shares = change(b.mu.shares)
	shares := slices.Clone(b.mu.shares)
	b.mu.Unlock()
	for _, s := range shares {
		s.resized() // takes locks of its store, and so not under mu
	}
	b.divide(time.Now(), true)
}

// divide gives each store its part of the memory for filters, if that is due or
// something has changed.
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
			if probes > s.probed { // else tables have gone, with what they counted
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
	over := max(0, b.pinned.Load()+b.merging.Load()-b.bytes*3/8)
	parts := divideFilters(max(0, b.bytes/4-over), needs)
	// Those that lose come first, so that the sum never exceeds the whole.
	for _, gains := range []bool{false, true} {
		for i, s := range b.mu.shares {
			if before := s.filters.Stats().BudgetBytes; parts[i] != before && parts[i] > before == gains {
				s.filters.SetBudget(parts[i])
			}
		}
	}
}

// filterNeed is what a store could do with.
type filterNeed struct {
	load      float64 // how much its filters are asked
	all, most int64   // bytes: of all its filters; that it may have
}

// divideFilters divides bytes among stores by their loads, none getting more than
// all its filters take. A store that nobody asks has a tenth of the average load, so
// that it is not cold when it is asked. What is left over goes to all alike, up to
// what each may have: filters to come have room.
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
	bytes -= pour(bytes, weights, room, parts)
	for i, n := range needs {
		weights[i], room[i] = 1, n.most-parts[i]
	}
	pour(bytes, weights, room, parts)
	return parts
}

// pour adds bytes to parts in proportion to weights, to none more than it has room
// for, and returns how many it could.
func pour(bytes int64, weights []float64, room, parts []int64) (poured int64) {
	open := make([]int, len(parts))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		sum := 0.0
		for _, i := range open {
			sum += weights[i]
		}
		rest := float64(bytes - poured)
		share := func(i int) int64 { return int64(rest * weights[i] / sum) }
		full := func(i int) bool { return room[i] <= share(i) }
		some := slices.ContainsFunc(open, full)
		open = slices.DeleteFunc(open, func(i int) bool {
			if some && !full(i) {
				return false
			}
			n := min(room[i], share(i))
			parts[i] += n
			poured += n
			return true
		})
	}
	return poured
}
