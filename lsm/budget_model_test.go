package lsm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
)

// budgetedStore is an open store of budgetModel.
type budgetedStore struct {
	db   *DB
	name string
	// due is the number of flushes that the writes require with a private budget of the
	// same share: the bytes written, in memtables of the size at that time.
	due float64
	// changes is the number of changes of the share since the store was opened. Each
	// may cause a flush: of a memtable that is now too large, or of a log that is too
	// small.
	changes int
	keys    int
}

// closedStore is a store that can be opened again. Its logs hold the unflushed writes.
type closedStore struct {
	name     string
	inMemory int64 // bytes
}

// budgetModel opens, fills, idles and closes stores that share a budget.
type budgetModel struct {
	t      *testing.T
	r      *rand.Rand
	fs     vfs.FS
	budget *Budget
	open   []*budgetedStore
	closed []closedStore
	made   int
}

// share is the size of a memtable as documented for Budget.
func (b *budgetModel) share() int64 {
	return max(minMemtableBytes, b.budget.bytes/8/max(1, int64(len(b.open))))
}

func (b *budgetModel) shareChanged() {
	for _, s := range b.open {
		s.changes++
	}
}

func (b *budgetModel) openStore() {
	var s closedStore
	if n := len(b.closed); n > 0 && b.r.IntN(2) == 0 {
		s, b.closed = b.closed[n-1], b.closed[:n-1]
	} else {
		b.made++
		s.name = fmt.Sprint("db", b.made)
	}
	db, err := Open(s.name, &Options{FS: b.fs, Budget: b.budget, MergeRule: MergeRule(b.r.IntN(int(MergeNever)))})
	require.NoError(b.t, err)
	b.shareChanged()
	due := float64(s.inMemory) / float64(b.share())
	b.open = append(b.open, &budgetedStore{db: db, name: s.name, due: due})
}

func (b *budgetModel) closeStore(i int) {
	s := b.open[i]
	inMemory := s.db.Stats().MemtableBytes
	require.NoError(b.t, s.db.Close())
	b.open = append(b.open[:i:i], b.open[i+1:]...)
	b.closed = append(b.closed, closedStore{s.name, inMemory})
	b.shareChanged()
}

// fill writes entries of equal size that fill the given number of memtables.
func (b *budgetModel) fill(s *budgetedStore, memtables float64) {
	keyBytes, valueBytes := 8+b.r.IntN(20), b.r.IntN(100)
	for until := s.due + memtables; s.due < until; {
		s.keys++
		key, value := fmt.Appendf(nil, "%0*d", keyBytes, s.keys), make([]byte, valueBytes)
		require.NoError(b.t, s.db.Set(key, value))
		s.due += float64(memtable.Cost(1, uint64(keyBytes+valueBytes))) / float64(b.share())
	}
}

// writeBatch applies one batch, which can be much larger than a memtable.
func (b *budgetModel) writeBatch(s *budgetedStore, memtables float64) {
	var batch Batch
	for cost := uint64(0); float64(cost) < memtables*float64(b.share()); cost += memtable.Cost(1, 10) {
		s.keys++
		require.NoError(b.t, batch.Set(fmt.Appendf(nil, "%010d", s.keys), nil))
	}
	require.NoError(b.t, s.db.Apply(&batch))
	s.due += max(memtables, 1) // flushed separately
}

// check requires that no store flushed more than twice as often as one with a private
// budget, and that idle stores stay within their part of the budget.
func (b *budgetModel) check() {
	for _, s := range b.open {
		require.NoError(b.t, s.db.WaitIdle(b.t.Context()))
		flushes := s.db.Stats().Writes.Flushes
		require.LessOrEqual(b.t, float64(flushes), 2*s.due+float64(s.changes)+1,
			"flushes of %s with %d stores, whose writes fill %.1f memtables", s.name, len(b.open), s.due)
	}
	// Per store, the current memtable and spare memory for the next one.
	most := 2 * int64(len(b.open)) * (b.share()/2*3 + 4<<10)
	require.LessOrEqual(b.t, b.budget.Stats().Memtables, most, "%d stores", len(b.open))
}

// TestBudgetModel: whatever stores that share a budget do, and however many they are,
// their memtables stay within their part of the budget, and none flushes much more
// often than the size of its memtables requires.
func TestBudgetModel(t *testing.T) {
	r := testseed.Rand(t)
	b := &budgetModel{t: t, r: r, fs: vfs.NewMem(), budget: NewBudget(int64(512<<10) << r.IntN(4))}
	for range 60 {
		switch n := len(b.open); {
		case n == 0, n < 16 && r.IntN(3) == 0:
			b.openStore()
		case r.IntN(8) == 0:
			b.closeStore(r.IntN(n))
		case r.IntN(6) == 0:
			b.writeBatch(b.open[r.IntN(n)], 4*r.Float64())
		default:
			b.fill(b.open[r.IntN(n)], 2*r.Float64())
		}
		if r.IntN(4) == 0 {
			b.check()
		}
	}
	b.check()
	for len(b.open) > 0 {
		b.closeStore(0)
	}
	require.Zero(t, b.budget.Stats().Memtables)
}

// TestOpenFlushesLargeBatch: a store whose log holds a batch larger than a memtable flushes
// it when it is opened. Before, it kept it in memory until the next write.
func TestOpenFlushesLargeBatch(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "db", &Options{FS: fs, Budget: NewBudget(64 << 20)})
	var batch Batch
	for i := range 20_000 {
		require.NoError(t, batch.Set(fmt.Append(nil, "batch", i), nil))
	}
	require.NoError(t, db.Apply(&batch))
	require.NoError(t, db.WaitIdle(t.Context()))
	require.Zero(t, db.Stats().Writes.Flushes, "it fits in a memtable")
	require.NoError(t, db.Close())

	budget := NewBudget(1 << 20)
	db = open(t, "db", &Options{FS: fs, Budget: budget})
	require.NoError(t, db.WaitIdle(t.Context()))
	require.Equal(t, uint64(1), db.Stats().Writes.Flushes)
	require.LessOrEqual(t, budget.Stats().Memtables, budget.bytes*3/8)
}

// TestStoreFlushesOnlyFullMemtables: a store flushed after every write when its share
// of the budget had shrunk, or after one large batch, because the slot table of the
// last memtable alone was larger than a memtable.
func TestStoreFlushesOnlyFullMemtables(t *testing.T) {
	const keys = 20_000
	fill := func(db *DB) (flushes uint64) {
		require.NoError(t, db.WaitIdle(t.Context()))
		before := db.Stats().Writes.Flushes
		for i := range keys {
			set(t, db, fmt.Sprint("key", i), "")
		}
		require.NoError(t, db.WaitIdle(t.Context()))
		return db.Stats().Writes.Flushes - before
	}
	private := open(t, "private", &Options{FS: vfs.NewMem(), Budget: NewBudget(1 << 20)})
	want := fill(private)
	require.Greater(t, want, uint64(4))

	t.Run("more stores", func(t *testing.T) {
		budget := NewBudget(16 << 20)
		o := &Options{FS: vfs.NewMem(), Budget: budget}
		db := open(t, "db", o)
		for i := range 100_000 {
			set(t, db, fmt.Sprint("key", i), "")
		}
		for i := range 15 {
			open(t, fmt.Sprint("other", i), o)
		}
		require.Equal(t, private.memtableBytes(), db.memtableBytes())
		require.LessOrEqual(t, fill(db), 2*want)
	})
	t.Run("a large batch", func(t *testing.T) {
		db := open(t, "db", &Options{FS: vfs.NewMem(), Budget: NewBudget(1 << 20)})
		var batch Batch
		for i := range 100_000 {
			require.NoError(t, batch.Set(fmt.Append(nil, "batch", i), nil))
		}
		require.NoError(t, db.Apply(&batch))
		require.LessOrEqual(t, fill(db), 2*want)
	})
}
