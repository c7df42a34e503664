package bloom

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"
)

// passBytes bounds what a Tick reads.
const passBytes = 4 << 20

// Manager keeps the filters of a store within a budget of memory. It decides
// which of their pages are in memory and loads and drops them. Its methods may
// be called by many goroutines at once.
type Manager struct {
	filters atomic.Pointer[[]*Filter] // newest first; the list itself never changes
	budget  atomic.Int64
	loaded  atomic.Uint64
	dropped atomic.Uint64

	// waiting counts those who wait for mu and are in a hurry. Whoever holds it
	// to load pages stops then, and leaves the rest for later.
	waiting atomic.Int32
	mu      struct {
		sync.Mutex           // held by the one who changes what is in memory
		ticked     time.Time // when tallies faded last
		settled    bool      // the last pass left nothing to do, and nothing has changed since
		restored   map[identity][]tally
	}
}

// NewManager returns a Manager without filters that uses at most the given
// number of bytes. If there is room for no page, all filters answer "maybe".
func NewManager(budgetBytes int64) *Manager {
	m := &Manager{}
	m.budget.Store(budgetBytes)
	m.filters.Store(&[]*Filter{})
	return m
}

// lock takes mu from one who is loading pages.
func (m *Manager) lock() {
	m.waiting.Add(1)
	m.mu.Lock()
	m.waiting.Add(-1)
}

// Update tells the Manager which filters the store has now, that of the newest
// table first. Filters that are left out lose all pages and are forgotten; from
// Update's return their sections are not read again, though MayContain still
// answers. A filter belongs to one Manager and appears once.
//
// Those that are new inherit the usefulness of the pages they replace: of the
// filters left out, range of keys by range of keys. Then their pages come into
// memory, most useful first, as far as they deserve it more than others. At no
// time is there more in memory than the budget allows, but for the page that is
// being read. If somebody else waits for the Manager, the rest is left to Tick.
//
// An error is about pages that could not be loaded. All others are in place,
// and the store can go on: a damaged page, reported once, answers "maybe".
func (m *Manager) Update(newestFirst ...*Filter) error {
	m.lock()
	defer m.mu.Unlock()
	added := m.track(newestFirst)
	pages := slices.DeleteFunc(m.candidates(), func(p candidate) bool {
		return !p.resident && !slices.Contains(added, p.filter)
	})
	_, err := m.carryOut(choose(pages, m.room(), math.MaxInt64, worthwhile))
	return err
}

// Track is Update without loading anything: Tick will. It is for a store that
// opens and does not want to wait.
func (m *Manager) Track(newestFirst ...*Filter) {
	m.lock()
	defer m.mu.Unlock()
	m.track(newestFirst)
	m.shrink()
}

// track takes over a list of filters and returns those that are new. Called
// under mu.
func (m *Manager) track(newestFirst []*Filter) (added []*Filter) {
	before := *m.filters.Load()
	var removed []*Filter
	for _, f := range before {
		f.take()
		if !slices.Contains(newestFirst, f) {
			removed = append(removed, f)
			m.dropAll(f)
		}
	}
	for i, f := range newestFirst {
		if slices.Contains(before, f) {
			continue
		}
		added = append(added, f)
		if tallies, ok := m.mu.restored[f.identity()]; ok {
			f.tallies = slices.Clone(tallies)
		} else if len(removed) > 0 {
			f.tallies = inherit(&f.index, removed)
		} else if older := firstOf(newestFirst[i+1:], before); older != nil {
			f.tallies = expect(f, older)
		}
	}
	m.mu.restored, m.mu.settled = nil, false
	filters := slices.Clone(newestFirst)
	m.filters.Store(&filters)
	return added
}

// firstOf returns the first of filters that is in a list.
func firstOf(filters, list []*Filter) *Filter {
	for _, f := range filters {
		if slices.Contains(list, f) {
			return f
		}
	}
	return nil
}

// SetBudget changes the budget. If it is less than what is in memory, the least
// useful pages go at once; if there is room now, Tick fills it.
func (m *Manager) SetBudget(budgetBytes int64) {
	m.lock()
	defer m.mu.Unlock()
	m.budget.Store(budgetBytes)
	m.mu.settled = false
	m.shrink()
}

// shrink drops pages until the rest is within the budget. Called under mu.
func (m *Manager) shrink() {
	swaps, _ := choose(m.candidates(), m.room(), 0, worthwhile)
	for _, s := range swaps {
		m.drop(s.out)
	}
}

// Tick is a pass over all pages at the given time: it takes up what look-ups have
// counted, lets what was before fade, and exchanges pages in memory for more
// useful ones that are not. It reads a few megabytes at most; more tells that
// others wait and it should be called again soon. After an error, which is as
// Update's, that can wait: the pages it is about are tried again each time.
func (m *Manager) Tick(now time.Time) (more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count(now) {
		m.mu.settled = false
	}
	if m.mu.settled {
		return false, nil
	}
	more, err = m.carryOut(choose(m.candidates(), m.room(), passBytes, worthwhile))
	m.mu.settled = !more && err == nil
	return more && err == nil, err
}

// count brings the tallies up to date and tells whether anything was asked. Time
// in which nothing is does not pass: after a quiet night the morning finds what
// was useful in the evening. Called under mu.
func (m *Manager) count(now time.Time) bool {
	elapsed := now.Sub(m.mu.ticked)
	if m.mu.ticked.IsZero() {
		elapsed = 0
	}
	m.mu.ticked = now
	filters := *m.filters.Load()
	if !slices.ContainsFunc(filters, (*Filter).asked) {
		return false
	}
	by := fade(elapsed)
	for _, f := range filters {
		f.fade(by)
		f.take()
	}
	return true
}

// candidates returns all pages that are not damaged. Called under mu.
func (m *Manager) candidates() []candidate {
	filters, n := *m.filters.Load(), 0
	for _, f := range filters {
		n += len(f.pages)
	}
	pages := make([]candidate, 0, n)
	var useful []float64
	for _, f := range filters {
		useful = usefulness(useful[:0], f.tallies, f.share)
		perByte := 0.0
		for i := range f.pages {
			if i == 0 || i == len(f.pages)-1 { // those between are like the first
				perByte = f.perByte(i)
			}
			if f.broken[i] {
				continue
			}
			pages = append(pages, candidate{
				filter: f, page: i, bytes: int64(f.index.entries[i].bytes),
				worth:    useful[i] * perByte,
				resident: f.pages[i].Load() != nil,
			})
		}
	}
	return pages
}

// room is what the indexes leave of the budget.
func (m *Manager) room() int64 {
	room := m.budget.Load()
	for _, f := range *m.filters.Load() {
		room -= f.index.memory()
	}
	return room
}

// carryOut exchanges pages, until somebody is in a hurry. What cannot be read
// costs no other page its place. The error has the first failure of each
// filter. Called under mu.
func (m *Manager) carryOut(swaps []swap, later bool) (more bool, err error) {
	failures := map[*Filter]error{}
	for _, s := range swaps {
		if s.in == nil {
			m.drop(s.out)
			continue
		}
		if m.waiting.Load() > 0 {
			later = true
			break
		}
		f := s.in.filter
		if failure := failures[f]; failure != nil && !errors.Is(failure, ErrCorrupt) {
			continue // nor could the other pages of this file be read
		}
		p, failure := f.readPage(s.in.page)
		if failure != nil {
			if failures[f] == nil {
				failures[f] = failure
				err = errors.Join(err, failure)
			}
			continue
		}
		m.drop(s.out)
		f.pages[s.in.page].Store(p)
		m.loaded.Add(1)
	}
	return later, err
}

// drop takes pages out of memory.
func (m *Manager) drop(pages []*candidate) {
	for _, p := range pages {
		p.filter.pages[p.page].Store(nil)
	}
	m.dropped.Add(uint64(len(pages)))
}

// dropAll takes all pages of a filter out of memory.
func (m *Manager) dropAll(f *Filter) {
	for i := range f.pages {
		if f.pages[i].Swap(nil) != nil {
			m.dropped.Add(1)
		}
	}
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

	Loaded  uint64 // pages that came into memory
	Dropped uint64 // pages that went
}

// Stats returns the sums over all filters. It takes no lock.
func (m *Manager) Stats() ManagerStats {
	s := ManagerStats{BudgetBytes: m.budget.Load(), Loaded: m.loaded.Load(), Dropped: m.dropped.Load()}
	for _, f := range *m.filters.Load() {
		stats := f.Stats()
		s.IndexBytes += stats.IndexBytes
		s.Pages += stats.Pages
		s.PageBytes += stats.PageBytes
		s.ResidentPages += stats.ResidentPages
		s.ResidentBytes += stats.ResidentBytes
	}
	return s
}
