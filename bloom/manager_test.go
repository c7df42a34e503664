package bloom

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// TestBudgetIsHonoured changes tables and budgets at random: memory stays within the
// budget, a Tick leaves no space for another page while there are more, and all answers
// are correct.
func TestBudgetIsHonoured(t *testing.T) {
	random := testseed.Rand(t)
	for range 20 {
		m := NewManager(random.Int64N(40_000))
		var filters []*Filter
		var keys [][][]byte
		for step := range 20 {
			if len(filters) > 0 && random.IntN(3) == 0 { // merge some of the newest
				n := 1 + random.IntN(len(filters))
				filters, keys = filters[n:], keys[n:]
			}
			some := randomKeys(random, random.IntN(3000))
			filters = append([]*Filter{open(t, build(&Options{PageBytes: 512}, some))}, filters...)
			keys = append([][][]byte{some}, keys...)
			require.NoError(t, m.Update(filters...))

			s := m.Stats()
			require.LessOrEqual(t, s.ResidentBytes, max(0, s.BudgetBytes-s.IndexBytes))
			for i, f := range filters {
				for _, key := range keys[i] {
					if !mayContain(f, key) {
						t.Fatalf("false negative: %x", key)
					}
				}
			}
			if random.IntN(3) == 0 {
				m.SetBudget(random.Int64N(40_000))
				s := m.Stats()
				require.LessOrEqual(t, s.ResidentBytes, max(0, s.BudgetBytes-s.IndexBytes))
			}
			more, err := m.Tick(time.Unix(int64(step), 0))
			require.NoError(t, err)
			require.False(t, more)
			s = m.Stats()
			room := max(0, s.BudgetBytes-s.IndexBytes)
			require.LessOrEqual(t, s.ResidentBytes, room)
			require.True(t, s.ResidentPages == s.Pages || s.ResidentBytes+512 > room, "space for a page is unused: %+v", s)
		}
	}
}

func TestUpdateForgetsOmittedFilters(t *testing.T) {
	random := testseed.Rand(t)
	var closed atomic.Bool
	data := build(nil, randomKeys(random, 5000))
	old, err := Open("old", io.NewSectionReader(readerFunc(func(p []byte, offset int64) (int, error) {
		if closed.Load() {
			return 0, errors.New("read after it was closed")
		}
		return bytes.NewReader(data).ReadAt(p, offset)
	}), 0, int64(len(data))))
	require.NoError(t, err)
	m := NewManager(1 << 20)
	require.NoError(t, m.Update(old))
	require.Equal(t, 2, old.Stats().ResidentPages)

	newer := open(t, build(nil, randomKeys(random, 100)))
	require.NoError(t, m.Update(newer))
	closed.Store(true)
	assert.Zero(t, old.Stats().ResidentPages)
	assert.True(t, mayContain(old, []byte("any")), "a reader of an older version still gets an answer")
	assert.Equal(t, 1, m.Stats().Pages)
	require.NoError(t, m.Update(newer))
	require.NoError(t, m.Update())
	assert.Zero(t, m.Stats().IndexBytes)
}

type readerFunc func(p []byte, offset int64) (int, error)

func (f readerFunc) ReadAt(p []byte, offset int64) (int, error) { return f(p, offset) }

// TestDamagedPage: a damaged page is reported once, is not loaded and answers "maybe";
// other pages work.
func TestDamagedPage(t *testing.T) {
	keys := numbered("%05d", 150)
	data := build(&Options{PageBytes: 64}, keys)
	data[64+5] ^= 1 // in the second page
	f := open(t, data)
	m := NewManager(1 << 20)
	err := m.Update(f)
	require.ErrorIs(t, err, ErrCorrupt)
	var corruption *CorruptionError
	require.ErrorAs(t, err, &corruption)
	assert.EqualValues(t, 100+64, corruption.Offset)
	assert.Equal(t, 2, f.Stats().ResidentPages)
	for _, key := range keys {
		require.True(t, mayContain(f, key))
	}
	require.NoError(t, m.Update(f), "reported once")
	assert.Equal(t, 2, f.Stats().ResidentPages)
}

// TestFailedPageReadIsRetried: the next Tick reads the page again.
func TestFailedPageReadIsRetried(t *testing.T) {
	data := build(nil, numbered("%05d", 9000))
	broken := errors.New("disk")
	var fails atomic.Bool
	f, err := Open("table", io.NewSectionReader(readerFunc(func(p []byte, offset int64) (int, error) {
		if fails.Load() {
			return 0, broken
		}
		return bytes.NewReader(data).ReadAt(p, offset)
	}), 0, int64(len(data))))
	require.NoError(t, err)
	m := NewManager(1 << 20)
	fails.Store(true)
	require.ErrorIs(t, m.Update(f), broken)
	assert.Zero(t, f.Stats().ResidentPages)
	more, err := m.Tick(time.Unix(1, 0))
	require.ErrorIs(t, err, broken)
	assert.False(t, more, "no immediate retry")
	fails.Store(false)
	_, err = m.Tick(time.Unix(2, 0))
	require.NoError(t, err)
	assert.Equal(t, 3, f.Stats().ResidentPages)

	fails.Store(true)
	_, err = Open("table", f.section)
	require.ErrorIs(t, err, broken)
	assert.NotErrorIs(t, err, ErrCorrupt)
}

// TestLookupsDuringUpdates: lookups concurrent with changes of the filter list never
// get a false negative.
func TestLookupsDuringUpdates(t *testing.T) {
	random := testseed.Rand(t)
	const tables = 6
	var filters [tables]*Filter
	var keys [tables][][]byte
	for i := range filters {
		keys[i] = randomKeys(random, 2000)
		filters[i] = open(t, build(&Options{PageBytes: 256}, keys[i]))
	}
	m := NewManager(8_000)
	var done atomic.Bool
	var group sync.WaitGroup
	for range 3 {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		group.Go(func() {
			for !done.Load() {
				i := own.IntN(tables)
				key := keys[i][own.IntN(len(keys[i]))]
				if !mayContain(filters[i], key) {
					t.Errorf("false negative: %x", key)
					return
				}
				filters[i].Missed(key)
				if own.IntN(100) == 0 {
					filters[i].Stats()
				}
			}
		})
	}
	own := rand.New(rand.NewPCG(random.Uint64(), 0))
	group.Go(func() {
		for !done.Load() {
			m.Stats()
			m.SetBudget(own.Int64N(10_000))
			_ = m.Restore("scores", m.Scores())
		}
	})
	stop := m.Start(func(err error) { t.Error(err) })
	defer stop()
	group.Go(func() {
		for clock := int64(0); !done.Load(); clock++ {
			if _, err := m.Tick(time.Unix(clock, 0)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		list := make([]*Filter, 0, tables)
		for _, i := range random.Perm(tables)[:random.IntN(tables+1)] {
			list = append(list, filters[i])
		}
		require.NoError(t, m.Update(list...))
	}
	done.Store(true)
	group.Wait()
}
