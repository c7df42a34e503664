package lsm

import (
	"slices"
	"time"

	"docstore/bloom"
)

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
