package bloom

import (
	"sync"

	"github.com/cockroachdb/errors"
)

// Manager keeps the filters of a store within a budget of memory. It decides
// which of their pages are in memory and loads and drops them.
type Manager struct {
	budget int64

	mu struct {
		sync.Mutex
		filters []*Filter // newest first
	}
}

// NewManager returns a Manager without filters that uses at most the given
// number of bytes. If there is room for no page, all filters answer "maybe".
func NewManager(budgetBytes int64) *Manager {
	return &Manager{budget: budgetBytes}
}

// Update tells the Manager which filters the store has now, that of the newest
// table first. It drops the pages that have no place any more, then loads those
// that have: at no time are there more than the budget allows. Filters that are
// left out lose all pages and are forgotten; from Update's return their sections
// are not read again, though MayContain still answers. A filter belongs to one
// Manager and appears once.
//
// An error is about pages that could not be loaded. All others are in place,
// and the store can go on: a damaged page, reported once, answers "maybe".
func (m *Manager) Update(newestFirst ...*Filter) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	tables := make([]table, len(newestFirst))
	for i, f := range newestFirst {
		tables[i] = f.table()
	}
	resident := rank(m.budget, tables)

	keep := make(map[*Filter]int, len(newestFirst))
	for i, f := range newestFirst {
		keep[f] = resident[i]
	}
	for _, f := range m.mu.filters {
		f.dropFrom(keep[f])
	}
	m.mu.filters = append([]*Filter(nil), newestFirst...)

	var failures []error
	for i, f := range newestFirst {
		if err := f.loadTo(resident[i]); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// ManagerStats tell what a Manager's memory is used for. Index and resident
// bytes together are within the budget, unless the indexes alone exceed it.
type ManagerStats struct {
	BudgetBytes   int64
	IndexBytes    int64
	Pages         int
	PageBytes     int64
	ResidentPages int
	ResidentBytes int64
}

// Stats returns the sums over all filters. It waits while Update runs.
func (m *Manager) Stats() ManagerStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := ManagerStats{BudgetBytes: m.budget}
	for _, f := range m.mu.filters {
		stats := f.Stats()
		s.IndexBytes += stats.IndexBytes
		s.Pages += stats.Pages
		s.PageBytes += stats.PageBytes
		s.ResidentPages += stats.ResidentPages
		s.ResidentBytes += stats.ResidentBytes
	}
	return s
}

// dropFrom drops all pages from page n on.
func (f *Filter) dropFrom(n int) {
	for i := n; i < len(f.pages); i++ {
		f.pages[i].Store(nil)
	}
}

// loadTo loads all pages before page n that are neither in memory nor damaged.
// It returns the first failure.
func (f *Filter) loadTo(n int) error {
	var first error
	for i := range n {
		if f.broken[i] || f.pages[i].Load() != nil {
			continue
		}
		if err := f.load(i); err != nil && first == nil {
			first = err
		}
	}
	return first
}
