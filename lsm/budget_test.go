package lsm

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm/internal/table"
	"docstore/wal"
)

func TestDivideFilters(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		needs []filterNeed
		want  []int64
	}{
		"nobody":                      {100, nil, []int64{}},
		"more than all need":          {100, []filterNeed{{1, 10, 1000}, {9, 20, 1000}}, []int64{45, 55}},
		"by load":                     {100, []filterNeed{{10, 1000, 1000}, {30, 1000, 1000}}, []int64{25, 75}},
		"small stores get their size": {100, []filterNeed{{50, 10, 1000}, {50, 1000, 1000}}, []int64{10, 90}},
		"an idle store":               {2100, []filterNeed{{0, 5000, 5000}, {1000, 5000, 5000}}, []int64{100, 2000}},
		"all idle":                    {100, []filterNeed{{0, 1000, 1000}, {0, 1000, 1000}}, []int64{50, 50}},
		"at most the limit":           {100, []filterNeed{{1, 5, 10}, {1, 5, 20}}, []int64{10, 20}},
		"nothing to divide":           {0, []filterNeed{{1, 5, 10}}, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, divideFilters(c.bytes, c.needs)) })
	}
	r := testseed.Rand(t)
	for range 1000 {
		needs := make([]filterNeed, 1+r.IntN(10))
		for i := range needs {
			most := r.Int64N(1 << 20)
			needs[i] = filterNeed{load: float64(r.IntN(1000)), all: r.Int64N(most + 1), most: most}
		}
		bytes, sum := r.Int64N(1<<22), int64(0)
		for i, part := range divideFilters(bytes, needs) {
			require.LessOrEqual(t, part, needs[i].most)
			sum += part
		}
		require.LessOrEqual(t, sum, bytes)
	}
}

// TestBudgetFollowsNeed: of stores of different size and load that share a budget, the
// busiest gets the most, also after another one becomes the busiest, and the total
// stays within the budget, except for the buffers of tables being written, which are larger
// than it.
func TestBudgetFollowsNeed(t *testing.T) {
	budget := NewBudget(512 << 10)
	var stores []*DB
	requireWithin := func() {
		t.Helper()
		s := budget.Stats()
		require.LessOrEqual(t, s.Memtables+s.Filters, s.Bytes+s.Bytes/10)
		require.LessOrEqual(t, s.Merges, int64(len(stores)*table.BufferBytes))
	}
	const keys = 100_000
	for i := range 3 {
		db := open(t, fmt.Sprint("db", i), &Options{FS: vfs.NewMem(), Budget: budget, MemtableBytes: 1 << 20})
		stores = append(stores, db)
	}
	for n := range keys {
		for _, db := range stores {
			set(t, db, fmt.Sprint(n), "")
		}
		if n%1000 == 0 {
			requireWithin()
		}
	}
	for _, db := range stores {
		require.NoError(t, db.Flush())
		require.NoError(t, db.WaitIdle(t.Context()))
		require.Greater(t, db.Stats().Filter.PageBytes, budget.bytes/4/3, "the filters must exceed the budget")
	}
	now := time.Now().Add(time.Hour)
	for busy := range stores {
		for range 10 { // divisions
			for n := range 5000 {
				requireMissing(t, stores[busy], fmt.Sprint(n, " is missing"))
			}
			now = now.Add(divideInterval)
			budget.divide(now, false)
			requireWithin()
		}
		for i, db := range stores {
			if i != busy {
				require.Greater(t, stores[busy].Stats().Filter.BudgetBytes, 2*db.Stats().Filter.BudgetBytes)
			}
		}
	}
}

// TestLogsTakeNoMoreThanTheirMemtables: the disk space of a log is preallocated, so it
// follows the budget like memtables.
func TestLogsTakeNoMoreThanTheirMemtables(t *testing.T) {
	fs, budget := vfs.NewMem(), NewBudget(1<<20)
	db := open(t, "db", &Options{FS: fs, Budget: budget})
	set(t, db, "key", "value")
	require.NotNil(t, db.writer.logs.current())
	info, err := fs.Stat(db.writer.logs.current().path)
	require.NoError(t, err)
	require.Positive(t, info.Size)
	require.LessOrEqual(t, info.Size, budget.memtableBytes(DefaultMemtableBytes)+wal.CapacityFor(0))
}

// TestBudgetCountsIndexesOfTables: the indexes of open tables are part of the budget and
// leave less for filters.
func TestBudgetCountsIndexesOfTables(t *testing.T) {
	budget := NewBudget(1 << 20)
	db := open(t, "db", &Options{FS: vfs.NewMem(), Budget: budget})
	for n := range 50_000 {
		set(t, db, fmt.Sprint(n), "some value")
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	tables := budget.tables.Load()
	require.Greater(t, tables, int64(8*50_000*10/4096), "eight bytes for each block of 4 KiB")
	budget.divide(time.Now(), true)
	require.LessOrEqual(t, db.Stats().Filter.BudgetBytes, budget.bytes/4-tables)
	require.NoError(t, db.Close())
	require.Equal(t, BudgetStats{Bytes: 1 << 20}, budget.Stats())
}

// TestIteratorsDuringLargeMerge: while a merge runs whose filter and index are larger than the
// part of the budget for snapshots and iterators, none of these fails, and the merge takes no
// more memory than its buffers.
func TestIteratorsDuringLargeMerge(t *testing.T) {
	const keys = 750_000
	mem, budget := vfs.NewMem(), NewBudget(1<<20)
	db := open(t, "db", &Options{FS: mem, Budget: budget, MergeRule: MergeNever})
	for n := range keys {
		require.NoError(t, db.Set(fmt.Appendf(nil, "%06d", n), nil))
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.Close())

	var (
		opened         atomic.Pointer[DB]
		tried, failed  atomic.Int64
		spooled, inUse atomic.Int64 // bytes; maximum
	)
	merging := vfs.NewFault(mem, func(op vfs.Op) error {
		if db := opened.Load(); db != nil && op.Kind == vfs.OpWrite && filepath.Ext(op.Name) != logSuffix {
			i := db.NewIter(nil)
			tried.Add(1)
			if i.Err() != nil {
				failed.Add(1)
			}
			_ = i.Close() // the error is counted
		}
		if filepath.Ext(op.Name) == spoolSuffix {
			spooled.Add(int64(op.Bytes))
		}
		for now := budget.merging.Load(); ; {
			if before := inUse.Load(); now <= before || inUse.CompareAndSwap(before, now) {
				return nil
			}
		}
	})
	var err error
	db, err = Open("db", &Options{FS: merging, Budget: budget})
	require.NoError(t, err)
	opened.Store(db)
	require.NoError(t, db.Set([]byte("another key"), nil))
	require.NoError(t, db.WaitIdle(t.Context()))
	opened.Store(nil)
	tables := db.schedule.current.Load().tables
	require.Greater(t, int64(tables[len(tables)-1].SpoolBytes()), budget.pinnable(), "else the test is void")
	require.Greater(t, tried.Load(), int64(20))
	require.Zero(t, failed.Load(), "of %d iterators", tried.Load())
	require.Positive(t, spooled.Load())
	require.LessOrEqual(t, inUse.Load(), int64(table.BufferBytes))
	require.Greater(t, inUse.Load(), int64(3*256<<10), "the parts of the output are not counted")

	i, found := db.NewIter(nil), 0
	for ok := i.First(); ok; ok = i.Next() {
		found++
	}
	require.NoError(t, i.Close())
	require.Equal(t, keys+1, found)
	require.NoError(t, db.Close())
	require.Zero(t, budget.Stats().Merges)
	names, err := mem.List("db")
	require.NoError(t, err)
	for _, name := range names {
		require.NotEqual(t, spoolSuffix, filepath.Ext(name))
	}
}
