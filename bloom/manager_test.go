package bloom

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRank(t *testing.T) {
	five := table{indexBytes: 10, pages: 5, pageBytes: 100, lastBytes: 40}
	one := table{indexBytes: 10, pages: 1, pageBytes: 40, lastBytes: 40}
	none := table{indexBytes: 10}
	for _, c := range []struct {
		name   string
		budget int64
		tables []table
		want   []int
	}{
		{"no tables", 1000, nil, []int{}},
		{"room for all", 480, []table{five, one}, []int{5, 0}},
		{"room for all and a byte less", 499, []table{five, one}, []int{5, 0}},
		{"room for all indeed", 500, []table{five, one}, []int{5, 1}},
		{"newest first", 180, []table{one, five, one}, []int{1, 1, 0}},
		{"up to the first that does not fit", 340, []table{five, one, one}, []int{3, 0, 0}},
		{"last page does not fit", 429, []table{five, none}, []int{4, 0}},
		{"last page fits", 460, []table{five, none}, []int{5, 0}},
		{"tables without keys are passed over", 500, []table{none, five, none, one}, []int{0, 5, 0, 0}},
		{"indexes alone", 20, []table{five, one}, []int{0, 0}},
		{"less than the indexes", 10, []table{one, one}, []int{0, 0}},
		{"nothing", 0, []table{one, five}, []int{0, 0}},
		{"less than nothing", -5, []table{five, one}, []int{0, 0}},
	} {
		assert.Equal(t, c.want, rank(c.budget, c.tables), c.name)
	}
}

// Random changes of the list of tables, under random budgets: memory stays
// within the budget, what is in memory is what the rank says, and the answers are
// right all the time.
func TestBudgetIsHonoured(t *testing.T) {
	random := newRandom(t)
	for range 20 {
		m := NewManager(random.Int64N(40_000))
		var filters []*Filter
		var keys [][][]byte
		for range 20 {
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
			var tables []table
			for _, f := range filters {
				tables = append(tables, f.table())
			}
			want := rank(m.budget, tables)
			pages := 0
			for i, f := range filters {
				pages += want[i]
				for p := range f.pages {
					require.Equal(t, p < want[i], f.pages[p].Load() != nil)
				}
				for _, key := range keys[i] {
					require.True(t, mayContain(f, key))
				}
			}
			require.Equal(t, pages, s.ResidentPages)
		}
	}
}

func TestUpdateForgetsWhatIsLeftOut(t *testing.T) {
	random := newRandom(t)
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
	assert.True(t, mayContain(old, []byte("any")), "a reader of an older version gets an answer still")
	assert.Equal(t, 1, m.Stats().Pages)
	require.NoError(t, m.Update(newer))
	require.NoError(t, m.Update())
	assert.Zero(t, m.Stats().IndexBytes)
}

type readerFunc func(p []byte, offset int64) (int, error)

func (f readerFunc) ReadAt(p []byte, offset int64) (int, error) { return f(p, offset) }

// A damaged page is reported once, stays out and says "maybe"; the others work.
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

// A page that could not be read is tried again by the next Update.
func TestReadErrorIsNotForEver(t *testing.T) {
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
	fails.Store(false)
	require.NoError(t, m.Update(f))
	assert.Equal(t, 3, f.Stats().ResidentPages)

	fails.Store(true)
	_, err = Open("table", f.section)
	require.ErrorIs(t, err, broken)
	assert.NotErrorIs(t, err, ErrCorrupt)
}

// Look-ups go on while filters come, go and change places, and never get a
// wrong "no".
func TestLookupsDuringUpdates(t *testing.T) {
	random := newRandom(t)
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
				if own.IntN(100) == 0 {
					filters[i].Stats()
				}
			}
		})
	}
	group.Go(func() {
		for !done.Load() {
			m.Stats()
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
