package lsm

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"docstore/internal/race"
	"docstore/internal/vfs"
)

func TestWritesAreReadBackFromMemtableTableAndLog(t *testing.T) {
	o := memOptions()
	db, err := Open("db", o)
	require.NoError(t, err)
	set(t, db, "a", "1")
	set(t, db, "", "the empty key")
	set(t, db, "gone", "x")
	set(t, db, "empty value", "")
	require.NoError(t, db.Delete([]byte("gone")))
	require.NoError(t, db.Delete([]byte("never there")))

	verify := func(where string, db *DB) {
		t.Helper()
		requireValue(t, db, "a", "1")
		requireValue(t, db, "", "the empty key")
		requireValue(t, db, "empty value", "")
		requireMissing(t, db, "gone")
		requireMissing(t, db, "never there")
		it := db.NewIter(nil)
		require.Equal(t, []string{"=the empty key", "a=1", "empty value="}, contents(t, it), where)
		require.NoError(t, it.Close())
		require.NoError(t, db.Check())
	}
	verify("memtable", db)
	require.NoError(t, db.Close())
	db = open(t, "db", o)
	verify("log", db)
	require.NoError(t, db.Flush())
	verify("table", db)
	require.Zero(t, db.Stats().LogBytes)
	require.NoError(t, db.Close())
	verify("table opened", open(t, "db", o))
}

func TestGetAppendsAndAllocatesNothing(t *testing.T) {
	db := open(t, "db", memOptions())
	set(t, db, "table", "1")
	require.NoError(t, db.Flush())
	set(t, db, "memory", "2")
	dst := append(make([]byte, 0, 16), "dst:"...)
	got, err := db.Get(dst, []byte("table"))
	require.NoError(t, err)
	require.Equal(t, "dst:1", string(got))
	for _, key := range []string{"table", "memory", "missing", "tablf"} {
		key := []byte(key)
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = db.Get(dst, key) }), "%s", key)
	}
}

func TestMultiGetAnswersEveryKeyOfOneState(t *testing.T) {
	db := open(t, "db", memOptions())
	set(t, db, "a", "1")
	set(t, db, "b", "2")
	answers := map[int]string{}
	require.NoError(t, db.MultiGet([][]byte{[]byte("b"), []byte("c"), []byte("a")}, func(i int, value []byte, err error) error {
		if err != nil {
			require.ErrorIs(t, err, ErrNotFound)
			value = []byte("none")
		}
		answers[i] = string(value)
		set(t, db, "a", "changed meanwhile")
		return nil
	}))
	require.Equal(t, map[int]string{0: "2", 1: "none", 2: "1"}, answers)
	enough := errors.New("enough")
	require.ErrorIs(t, db.MultiGet([][]byte{nil, nil}, func(int, []byte, error) error { return enough }), enough)
}

func TestLimitsOnBothSides(t *testing.T) {
	db := open(t, "db", memOptions())
	key, value := make([]byte, MaxKeyBytes+1), make([]byte, MaxValueBytes+1)
	require.NoError(t, db.Set(key[1:], []byte("v")))
	require.ErrorIs(t, db.Set(key, nil), ErrKeyTooLarge)
	require.ErrorIs(t, db.Delete(key), ErrKeyTooLarge)
	require.ErrorIs(t, db.Set([]byte("larger"), value), ErrValueTooLarge)
	if !race.Enabled {
		require.NoError(t, db.Set([]byte("large"), value[1:]))
		require.NoError(t, db.Flush())
		got, err := db.Get(nil, []byte("large"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(value[1:], got))
	}
	requireValue(t, db, string(key[1:]), "v")
	requireMissing(t, db, "larger")

	var b Batch
	require.ErrorIs(t, b.Set(key, nil), ErrKeyTooLarge)
	require.ErrorIs(t, db.Apply(&b), ErrKeyTooLarge, "a refused write is not dropped in silence")
	b.Reset()
	b.data = make([]byte, MaxBatchBytes-1000-maxOpOverhead) // simulates a large batch
	require.ErrorIs(t, b.Set(nil, value[:1001]), ErrBatchTooLarge)
	require.ErrorIs(t, db.Apply(&b), ErrBatchTooLarge)
	b.err = nil
	require.NoError(t, b.Set(nil, value[:1000]))
	require.Equal(t, 1, b.Len())
}

func TestNilAndFaultyOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	db, err := Open(dir, nil)
	require.NoError(t, err)
	set(t, db, "k", "v")
	require.NoError(t, db.Sync())
	require.NoError(t, db.Close())
	requireValue(t, open(t, dir, &Options{Durability: PowerLoss}), "k", "v")

	_, err = Open(dir, &Options{MemtableBytes: 1, FalsePositiveRate: 2, Durability: 9, MergeRate: rate.NewLimiter(1, 0)})
	require.Error(t, err)
	require.Contains(t, fmt.Sprintf("%+v", err), "memtable of 1 bytes")
	require.Contains(t, fmt.Sprintf("%+v", err), "false positive rate")
	require.Contains(t, fmt.Sprintf("%+v", err), "unknown durability")
	require.Contains(t, fmt.Sprintf("%+v", err), "a merge rate with a burst of 0 bytes")
}

func TestSecondWriterIsRefusedAndFirstIsNamed(t *testing.T) {
	o := memOptions()
	open(t, "db", o)
	_, err := Open("db", o)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "process ")
	_, err = NewBuilder("db", o)
	require.ErrorIs(t, err, ErrLocked)
}

func TestEverythingAfterCloseIsErrClosed(t *testing.T) {
	o := memOptions()
	db, err := Open("db", o)
	require.NoError(t, err)
	set(t, db, "a", "1")
	require.NoError(t, db.Flush())
	set(t, db, "b", "2")
	snapshot, it, moved := db.NewSnapshot(), db.NewIter(nil), db.NewIter(nil)
	require.True(t, moved.First())
	require.NoError(t, db.Close())
	require.NoError(t, db.Close())

	_, err = db.Get(nil, []byte("a"))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.Set(nil, nil), ErrClosed)
	require.ErrorIs(t, db.Delete(nil), ErrClosed)
	require.ErrorIs(t, db.Apply(new(Batch)), ErrClosed)
	require.ErrorIs(t, db.MultiGet([][]byte{nil}, nil), ErrClosed)
	require.ErrorIs(t, db.Sync(), ErrClosed)
	require.ErrorIs(t, db.Flush(), ErrClosed)
	require.ErrorIs(t, db.WaitIdle(t.Context()), ErrClosed)
	require.ErrorIs(t, db.Checkpoint("elsewhere"), ErrClosed)
	require.ErrorIs(t, db.Check(), ErrClosed)
	_, err = db.Refresh(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, db.Stats().Tables)

	_, err = snapshot.Get(nil, []byte("a"))
	require.ErrorIs(t, err, ErrClosed)
	for name, it := range map[string]*Iterator{
		"of the DB": db.NewIter(nil), "of a snapshot": snapshot.NewIter(nil), "open": it, "on an entry": moved,
	} {
		require.False(t, it.Valid(), name)
		require.False(t, it.Next() || it.Prev() || it.First() || it.Last() || it.SeekGE(nil) || it.SeekLT([]byte("z")), name)
		require.ErrorIs(t, it.Err(), ErrClosed, name)
		require.NoError(t, it.Close())
		require.NoError(t, it.Close())
		require.ErrorIs(t, it.Err(), ErrClosed, name)
	}
	after := db.NewSnapshot()
	_, err = after.Get(nil, []byte("a"))
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, after.Close())
	require.NoError(t, snapshot.Close())
	require.NoError(t, snapshot.Close())
}

func TestDurabilityNoneFlushesAtClose(t *testing.T) {
	o := memOptions()
	o.Durability = None
	db, err := Open("db", o)
	require.NoError(t, err)
	set(t, db, "a", "1")
	require.NoError(t, db.Sync())
	set(t, db, "b", "2")
	require.NoError(t, db.Close())
	db = open(t, "db", o)
	requireValue(t, db, "a", "1")
	requireValue(t, db, "b", "2")
	require.NotEmpty(t, db.Stats().Tables)
}

func TestMergeDropsOverwritesAndTombstones(t *testing.T) {
	db := open(t, "db", memOptions())
	for round := range 4 {
		for i := range 100 {
			set(t, db, fmt.Sprintf("key %03d", i), fmt.Sprint(round))
		}
		require.NoError(t, db.Flush())
		require.NoError(t, db.WaitIdle(t.Context()))
	}
	require.Equal(t, uint64(100), db.Stats().Tables[0].Entries)
	for i := range 100 {
		require.NoError(t, db.Delete([]byte(fmt.Sprintf("key %03d", i))))
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	require.Empty(t, db.Stats().Tables, "tombstones and what they hid are gone")
	it := db.NewIter(nil)
	require.False(t, it.First() || it.Last())
	require.NoError(t, it.Close())
}

func TestSnapshotIsUnchangedByFlushesAndMerges(t *testing.T) {
	db := open(t, "db", memOptions())
	set(t, db, "a", "old")
	set(t, db, "b", "old")
	require.NoError(t, db.Flush())
	set(t, db, "a", "newer")
	snapshot := db.NewSnapshot()
	set(t, db, "a", "newest")
	require.NoError(t, db.Delete([]byte("b")))
	set(t, db, "c", "newest")
	for range 4 {
		set(t, db, "d", "newest")
		require.NoError(t, db.Flush())
	}
	require.NoError(t, db.WaitIdle(t.Context()))

	requireValue(t, snapshot, "a", "newer")
	requireValue(t, snapshot, "b", "old")
	requireMissing(t, snapshot, "c")
	it := snapshot.NewIter(nil)
	require.NoError(t, snapshot.Close())
	_, err := snapshot.Get(nil, []byte("a"))
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, []string{"a=newer", "b=old"}, contents(t, it))
	require.NoError(t, it.Close())
	requireValue(t, db, "a", "newest")
	requireMissing(t, db, "b")
}

func TestMergedFilesAreUnlinkedWhileIteratorReadsThem(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	set(t, db, "a", "1")
	require.NoError(t, db.Flush())
	it := db.NewIter(nil)
	set(t, db, "b", "2")
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	names, err := o.FS.List("db")
	require.NoError(t, err)
	tables := 0
	for _, name := range names {
		if strings.HasSuffix(name, tableSuffix) {
			tables++
		}
	}
	require.Equal(t, 1, tables, "%v", names)
	require.Equal(t, []string{"a=1"}, contents(t, it))
	require.NoError(t, it.Close())
}

func TestWaitIdleEndsWithItsContext(t *testing.T) {
	gate := make(chan struct{})
	o := memOptions()
	o.FS = vfs.NewFault(o.FS, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			<-gate
		}
		return nil
	})
	db := open(t, "db", o)
	set(t, db, "a", "1")
	flushed := make(chan error)
	go func() { flushed <- db.Flush() }()
	for db.Stats().MemtablesWaiting == 0 {
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, db.WaitIdle(ctx), context.Canceled)
	close(gate)
	require.NoError(t, <-flushed)
	require.NoError(t, db.WaitIdle(t.Context()))
}

func TestIterator(t *testing.T) {
	db := open(t, "db", memOptions())
	for _, key := range []string{"a", "b1", "b2", "b3", "c"} {
		set(t, db, key, "v")
	}
	require.NoError(t, db.Flush())
	set(t, db, "b15", "v")
	require.NoError(t, db.Delete([]byte("b2")))

	it := db.NewIter(nil)
	defer it.Close()
	at := func() string {
		if !it.Valid() {
			return "-"
		}
		return string(it.Key())
	}
	for _, step := range []struct {
		do   func() bool
		want string
	}{
		{it.Next, "a"}, {it.Prev, "-"}, {it.Prev, "-"}, {it.Next, "a"}, {it.Next, "b1"}, {it.Next, "b15"},
		{it.Next, "b3"}, {it.Prev, "b15"}, {it.Next, "b3"}, {it.Next, "c"}, {it.Next, "-"}, {it.Next, "-"}, {it.Prev, "c"},
		{func() bool { return it.SeekGE([]byte("b2")) }, "b3"}, {it.Prev, "b15"},
		{func() bool { return it.SeekLT([]byte("b3")) }, "b15"}, {it.Next, "b3"},
		{func() bool { return it.SeekGE([]byte("d")) }, "-"}, {it.Prev, "c"},
		{func() bool { return it.SeekLT([]byte("a")) }, "-"}, {it.Next, "a"},
		{it.Last, "c"}, {it.First, "a"},
	} {
		step.do()
		require.Equal(t, step.want, at())
	}

	for name, c := range map[string]struct {
		o    IterOptions
		want []string
	}{
		"prefix":           {IterOptions{Prefix: []byte("b")}, []string{"b1=v", "b15=v", "b3=v"}},
		"bounds":           {IterOptions{LowerBound: []byte("b1"), UpperBound: []byte("b3")}, []string{"b1=v", "b15=v"}},
		"prefix and bound": {IterOptions{Prefix: []byte("b"), LowerBound: []byte("b12")}, []string{"b15=v", "b3=v"}},
		"nothing":          {IterOptions{LowerBound: []byte("b2"), UpperBound: []byte("b2")}, nil},
		"last byte 0xff":   {IterOptions{Prefix: []byte{0xff}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			it := db.NewIter(&c.o)
			defer it.Close()
			require.Equal(t, c.want, contents(t, it))
			var backwards []string
			for ok := it.Last(); ok; ok = it.Prev() {
				backwards = append([]string{string(it.Key()) + "=" + string(it.Value())}, backwards...)
			}
			require.Equal(t, c.want, backwards)
			if len(c.want) > 0 {
				require.True(t, it.SeekGE(nil))
				require.Equal(t, c.want[0], string(it.Key())+"=v")
				require.True(t, it.SeekLT([]byte{0xff, 0xff}))
				require.Equal(t, c.want[len(c.want)-1], string(it.Key())+"=v")
			}
		})
	}
}

func TestStatsTellWhatWasDone(t *testing.T) {
	db := open(t, "db", memOptions())
	for i := range 2000 {
		set(t, db, fmt.Sprintf("key %d", i), "value")
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	loadFilters(t, db)
	for i := range 2000 {
		requireMissing(t, db, fmt.Sprintf("key %d missing", i))
	}
	s := db.Stats()
	require.NoError(t, s.Problem)
	require.EqualValues(t, 2000, s.Writes.Writes)
	require.Positive(t, s.Writes.Flushes)
	require.Positive(t, s.Writes.Merges)
	require.Greater(t, s.Writes.Amplification(), 1.0)
	require.Zero(t, s.LogBytes)
	var entries, no uint64
	for _, table := range s.Tables {
		entries += table.Entries
		no += table.Filter.No
	}
	require.EqualValues(t, 2000, entries)
	require.Greater(t, no, uint64(1500))
	require.Positive(t, s.Filter.ResidentPages)

	filters := db.FilterPages()
	require.Len(t, filters, len(s.Tables))
	for i, filter := range filters {
		require.Equal(t, s.Tables[i].Number, filter.Table)
		require.Len(t, filter.Pages, s.Tables[i].Filter.Pages)
	}
}

func TestFailedFlushIsLogged(t *testing.T) {
	var lines bytes.Buffer
	o := memOptions()
	failing := true
	o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	o.FS = vfs.NewFault(o.FS, func(op vfs.Op) error {
		if failing && op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			failing = false
			return vfs.ErrNoSpace
		}
		return nil
	})
	db, err := Open("db", o)
	require.NoError(t, err)
	set(t, db, "a", "1")
	require.ErrorIs(t, db.Flush(), vfs.ErrNoSpace)
	requireValue(t, db, "a", "1")
	require.NoError(t, db.Close())
	require.Contains(t, lines.String(), "a flush failed")
}
