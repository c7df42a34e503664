package bloom

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"
)

// passBytes bounds the bytes read by a Tick.
const passBytes = 4 << 20

// Manager keeps the filters of a store within a memory budget: it decides which pages
// are in memory, loads and drops them. It is safe for concurrent use.
type Manager struct {
	filters atomic.Pointer[[]*Filter] // newest first; the slice is immutable
	budget  atomic.Int64
	loaded  atomic.Uint64
	dropped atomic.Uint64

	// waiting counts the calls of lock that wait for mu. A holder that is loading pages
	// then stops early and leaves the rest to Tick.
	waiting atomic.Int32
	mu      struct {
		sync.Mutex           // held while the set of resident pages changes
		ticked     time.Time // when tallies last decayed
		settled    bool      // the last pass found nothing to do, and nothing has changed since
		restored   map[identity][]tally
	}
}

// NewManager returns a Manager without filters and with the given budget in bytes.
// Without space for a page all filters answer "maybe".
func NewManager(budgetBytes int64) *Manager {
	m := &Manager{}
	m.budget.Store(budgetBytes)
	m.filters.Store(&[]*Filter{})
	return m
}

// lock acquires mu and interrupts a holder that is loading pages.
func (m *Manager) lock() {
	m.waiting.Add(1)
	m.mu.Lock()
	m.waiting.Add(-1)
}

// Update sets the store's filters, newest table first. Filters that are left out lose
// their pages and are forgotten: after Update returns their sections are not read,
// though MayContain still answers. A filter must belong to one Manager and appear once.
//
// New filters inherit the usefulness of the pages that they replace, by key range.
// Update then loads their most useful pages, as far as they rank above others. Resident
// pages exceed the budget at most by the page being read. If another call waits for the
// Manager, Tick loads the rest.
//
// An error reports pages that could not be loaded. All others are in place and the
// store can continue: a damaged page is reported once and answers "maybe".
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

// Track is Update without loading pages, which is left to Tick, so that opening a store
// is fast.
func (m *Manager) Track(newestFirst ...*Filter) {
	m.lock()
	defer m.mu.Unlock()
	m.track(newestFirst)
	m.shrink()
}

// track replaces the list of filters and returns the new ones. Called under mu.
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

// firstOf returns the first of filters that is in list.
func firstOf(filters, list []*Filter) *Filter {
	for _, f := range filters {
		if slices.Contains(list, f) {
			return f
		}
	}
	return nil
}

// SetBudget changes the budget. If resident pages exceed it, the least useful are
// dropped at once; otherwise Tick fills the new space.
func (m *Manager) SetBudget(budgetBytes int64) {
	m.lock()
	defer m.mu.Unlock()
	m.budget.Store(budgetBytes)
	m.mu.settled = false
	m.shrink()
}

// shrink drops pages until the rest fits the budget. Called under mu.
func (m *Manager) shrink() {
	swaps, _ := choose(m.candidates(), m.room(), 0, worthwhile)
	for _, s := range swaps {
		m.drop(s.out)
	}
}

// Tick is a pass over all pages: it adds new samples to the tallies, decays older
// counts, and replaces resident pages by more useful ones. It reads at most 4 MiB
// (passBytes); more reports that pages remain to be loaded and Tick should be called
// again soon. Errors are those of Update; the next call retries the failed pages and
// need not be made early.
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

// count updates the tallies and reports whether there were lookups. Time without
// lookups does not count: after a quiet night the pages of the evening are still the
// most useful. Called under mu.
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

// candidates returns all undamaged pages. Called under mu.
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
			if i == 0 || i == len(f.pages)-1 { // all pages but the last have the same size
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

// room returns the budget minus the size of the indexes.
func (m *Manager) room() int64 {
	room := m.budget.Load()
	for _, f := range *m.filters.Load() {
		room -= f.index.memory()
	}
	return room
}

// carryOut executes swaps until another call waits for mu. A page that cannot be read
// replaces no other page. The error joins the first failure of each filter. Called
// under mu.
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
			continue // the file's other pages cannot be read either
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

// drop removes pages from memory.
func (m *Manager) drop(pages []*candidate) {
	for _, p := range pages {
		p.filter.pages[p.page].Store(nil)
	}
	m.dropped.Add(uint64(len(pages)))
}

// dropAll removes all pages of a filter from memory.
func (m *Manager) dropAll(f *Filter) {
	for i := range f.pages {
		if f.pages[i].Swap(nil) != nil {
			m.dropped.Add(1)
		}
	}
}

// ManagerStats describe a Manager's memory. IndexBytes + ResidentBytes is within the
// budget, unless the indexes alone exceed it.
type ManagerStats struct {
	BudgetBytes   int64
	IndexBytes    int64
	Pages         int
	PageBytes     int64
	ResidentPages int
	ResidentBytes int64

	Loaded  uint64 // pages loaded
	Dropped uint64 // pages dropped
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
