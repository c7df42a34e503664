package bloom

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// worths returns the total worth of the resident pages and the best possible total.
func worths(m *Manager) (resident, best float64) {
	pages := m.candidates()
	sum := func() (sum float64) {
		for _, p := range pages {
			if p.resident {
				sum += p.worth * float64(p.bytes)
			}
		}
		return sum
	}
	resident = sum()
	for i := range pages {
		pages[i].resident = false
	}
	swaps, _ := choose(pages, m.room(), 1<<40, anyBetter)
	for _, s := range swaps {
		s.in.resident = true
	}
	return resident, sum()
}

// TestNoColdGapAfterMergeAndFlush: after a merge or a flush the useful pages of the new
// table are in memory at once, so lookups search no more tables than after the ranking
// has learned. The budget is exceeded at most by the page being read.
func TestNoColdGapAfterMergeAndFlush(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, twenty times slower with the race detector: make test-all also runs it without")
	}
	for _, w := range workloads {
		for _, missing := range []float64{0, 0.5, 1} {
			t.Run(fmt.Sprintf("%s/missing=%v", w.name, missing), func(t *testing.T) {
				c := comparison{unitKeys: 300, pageBytes: 64, getsPerSecond: 2000}
				random := rand.New(rand.NewPCG(1, 2))
				s := c.start(t, w.key, c.tables(w.key), rankings[0], 0.25)
				pick := w.pick(random, s.keys)
				s.run(t, 10, random, pick, missing)

				checked := func(merged simulated, rest ...simulated) *Filter {
					reader := readerFunc(func(p []byte, offset int64) (int, error) {
						if m := s.manager.Stats(); m.ResidentBytes > m.BudgetBytes-m.IndexBytes {
							t.Errorf("over budget: %+v", m)
						}
						return bytes.NewReader(merged.encoded).ReadAt(p, offset)
					})
					var err error
					merged.filter, err = Open("merged", io.NewSectionReader(reader, 0, int64(len(merged.encoded))))
					require.NoError(t, err)
					s.tables = append([]simulated{merged}, rest...)
					s.follow(merged.filter)
					require.NoError(t, s.manager.Update(s.filters()...))
					return merged.filter
				}
				// Merge the three newest tables, then add a new one.
				checked(c.table(w.key, s.tables[2].from, s.tables[0].to), s.tables[3:]...)
				resident, best := worths(s.manager)
				assert.GreaterOrEqual(t, resident, 0.95*best, "inherited usefulness in memory")
				soon := s.run(t, 1, random, pick, missing)
				later := s.run(t, 8, random, pick, missing)
				assert.LessOrEqual(t, soon, 1.05*later+0.03, "probes per get")

				flushed := checked(c.table(w.key, s.keys, s.keys+c.unitKeys), s.tables...)
				if s.keys += c.unitKeys; w.name == "newest first, time-ordered keys" {
					pick = w.pick(random, s.keys)
				}
				if missing > 0 {
					assert.NotZero(t, flushed.Stats().ResidentPages)
				}
				soon = s.run(t, 1, random, pick, missing)
				later = s.run(t, 8, random, pick, missing)
				assert.LessOrEqual(t, soon, 1.05*later+0.03, "probes per get")
			})
		}
	}
}

// TestRestore: after a restart the same pages are loaded, in bounded passes; scores of
// an unknown filter have no effect.
func TestRestore(t *testing.T) {
	c := comparison{unitKeys: 600, pageBytes: 64, getsPerSecond: 3000}
	random := testseed.Rand(t)
	tables := c.tables(hashed)
	s := c.start(t, hashed, tables, rankings[0], 0.1)
	s.run(t, 10, random, zipfian(random, s.keys), 0.5)
	_, err := s.manager.Tick(time.Unix(100, 0))
	require.NoError(t, err)
	saved := s.manager.Scores()
	before, _ := worths(s.manager)

	for _, c := range []struct {
		name string
		open func(m *Manager, filters []*Filter)
	}{
		{"at once", func(m *Manager, filters []*Filter) { require.NoError(t, m.Update(filters...)) }},
		{"by Tick", func(m *Manager, filters []*Filter) {
			m.Track(filters...)
			assert.Zero(t, m.Stats().ResidentPages)
			more, err := m.Tick(time.Unix(200, 0))
			require.NoError(t, err)
			assert.False(t, more)
		}},
	} {
		var filters []*Filter
		for _, table := range tables {
			filters = append(filters, open(t, table.encoded))
		}
		m := NewManager(s.manager.Stats().BudgetBytes)
		require.NoError(t, m.Restore("scores", saved))
		c.open(m, filters)
		after, best := worths(m)
		assert.InEpsilon(t, best, after, 0.01, c.name)
		assert.GreaterOrEqual(t, after, 0.99*before, c.name)
		for i, f := range filters {
			assert.Equal(t, s.filters()[i].tallies, f.tallies)
		}
	}
	other := open(t, build(nil, numbered("%d", 100)))
	m := NewManager(1 << 20)
	require.NoError(t, m.Restore("scores", saved))
	require.NoError(t, m.Update(other))
	assert.Equal(t, make([]tally, 1), other.tallies)
}

// TestStart: pages are loaded in the background, a failure is reported and retried
// later, and stop ends the goroutine.
func TestStart(t *testing.T) {
	data := build(&Options{PageBytes: 64}, numbered("%05d", 1000))
	virtualtime.Test(t, func(t *testing.T) {
		broken := errors.New("disk")
		var failing atomic.Bool
		failing.Store(true)
		f, err := Open("table", io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))))
		require.NoError(t, err)
		f.section = io.NewSectionReader(readerFunc(func(p []byte, offset int64) (int, error) {
			if failing.Load() {
				return 0, broken
			}
			return bytes.NewReader(data).ReadAt(p, offset)
		}), 0, int64(len(data)))
		m := NewManager(1 << 20)
		m.Track(f)
		var reports atomic.Int32
		stop := m.Start(func(err error) {
			assert.ErrorIs(t, err, broken)
			reports.Add(1)
		})
		synctest.Wait()
		assert.EqualValues(t, 1, reports.Load())
		time.Sleep(retryInterval + time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 2, reports.Load())
		failing.Store(false)
		time.Sleep(retryInterval + time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 2, reports.Load())
		assert.Equal(t, f.Stats().Pages, f.Stats().ResidentPages)

		m.SetBudget(0)
		assert.Zero(t, f.Stats().ResidentPages)
		m.SetBudget(1 << 20)
		assert.Zero(t, f.Stats().ResidentPages)
		time.Sleep(tickInterval + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, f.Stats().Pages, f.Stats().ResidentPages)
		stop()
		stop()
	})
}

// TestPassesAreBounded: a Tick reads at most passBytes and reports that pages remain.
func TestPassesAreBounded(t *testing.T) {
	opts := &Options{PageBytes: MaxPageBytes, FalsePositiveRate: MinFalsePositiveRate}
	data := build(opts, numbered("%06d", capacity(4*MaxPageBytes, hashes(MinFalsePositiveRate), MinFalsePositiveRate)+1))
	var filters []*Filter
	for range 7 {
		filters = append(filters, open(t, data)) // each a page of 1 MiB
	}
	m := NewManager(1 << 40)
	m.Track(filters...)
	more, err := m.Tick(time.Unix(1, 0))
	require.NoError(t, err)
	assert.True(t, more)
	assert.EqualValues(t, passBytes, m.Stats().ResidentBytes)
	more, err = m.Tick(time.Unix(1, 0))
	require.NoError(t, err)
	assert.False(t, more)
	assert.Equal(t, 7, m.Stats().ResidentPages)
	assert.EqualValues(t, 7, m.Stats().Loaded)
}

// TestUpdateDoesNotWaitForAPass: a waiting Update runs after at most one page read.
func TestUpdateDoesNotWaitForAPass(t *testing.T) {
	data := build(&Options{PageBytes: 64}, numbered("%05d", 1000))
	var m *Manager
	var group sync.WaitGroup
	reads := 0
	f := open(t, data)
	f.section = io.NewSectionReader(readerFunc(func(p []byte, offset int64) (int, error) {
		if reads++; reads == 3 {
			group.Go(func() { m.Track() })
			for m.waiting.Load() == 0 {
				runtime.Gosched()
			}
		}
		return bytes.NewReader(data).ReadAt(p, offset)
	}), 0, int64(len(data)))
	m = NewManager(1 << 20)
	m.Track(f)
	more, err := m.Tick(time.Unix(1, 0))
	require.NoError(t, err)
	assert.True(t, more)
	group.Wait()
	assert.Equal(t, 3, reads)
	assert.Zero(t, m.Stats().Pages)
}
