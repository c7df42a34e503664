package lsm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

func namesIn(t *testing.T, fsys vfs.FS, dir, suffix string) (found []string) {
	t.Helper()
	names, err := fsys.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			found = append(found, name)
		}
	}
	return found
}

func TestOpenRemovesOrphansAndKeepsForeignFiles(t *testing.T) {
	o := memOptions()
	db, err := Open("db", o)
	require.NoError(t, err)
	set(t, db, "a", "1")
	require.NoError(t, db.Flush())
	require.NoError(t, db.Close())
	for _, name := range []string{tableName(900), logName(0), spoolName(900), manifestName + tmpSuffix, filtersName + tmpSuffix, "notes.txt", "12.table"} {
		writeFile(t, o.FS, filepath.Join("db", name), []byte("x"))
	}
	db = open(t, "db", o)
	requireValue(t, db, "a", "1")
	names, err := o.FS.List("db")
	require.NoError(t, err)
	require.Equal(t, []string{tableName(2), "12.table", filtersName, lockName, manifestName, "notes.txt"}, names)
	require.EqualValues(t, 901, db.schedule.mu.nextNumber, "no number is used twice")
}

// TestPowerLossBehindAnOpenAfterAKill: a process dies between renaming the manifest and
// syncing the directory, the next process opens the store, and the power is cut. Any of
// the unsynced changes of names may be lost, so Open must sync those of the dead
// process before its own changes.
func TestPowerLossBehindAnOpenAfterAKill(t *testing.T) {
	mem := vfs.NewMem()
	renamed := false
	var killed *vfs.Mem
	db := open(t, "db", &Options{FS: vfs.NewFault(mem, func(op vfs.Op) error {
		renamed = renamed || op.Kind == vfs.OpRename && killed == nil && len(namesIn(t, mem, "db", tableSuffix)) == 1
		if renamed && op.Kind == vfs.OpSyncDir && killed == nil {
			killed = mem.ProcessCrashClone()
		}
		return nil
	})})
	set(t, db, "a", "1")
	require.NoError(t, db.Sync())
	require.NoError(t, db.Flush())
	require.NotNil(t, killed)

	again := open(t, "db", &Options{FS: killed})
	requireValue(t, again, "a", "1")
	for seed := range uint64(50) {
		after := open(t, "db", &Options{FS: killed.CrashClone(vfs.KeepReordered(seed))})
		requireValue(t, after, "a", "1")
	}
}

func TestMissingFileIsNamed(t *testing.T) {
	o := memOptions()
	db, err := Open("db", o)
	require.NoError(t, err)
	set(t, db, "a", "1")
	require.NoError(t, db.Flush())
	require.NoError(t, db.Close())

	require.NoError(t, o.FS.Rename("db/"+tableName(2), "db/away"))
	_, err = Open("db", o)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, tableName(2)+" is corrupt at offset 0: missing, though the manifest names it")
	readOnly := *o
	readOnly.ReadOnly = true
	_, err = Open("db", &readOnly)
	require.ErrorContains(t, err, tableName(2))
	require.NoError(t, o.FS.Rename("db/away", "db/"+tableName(2)))

	require.NoError(t, o.FS.Remove("db/MANIFEST"))
	_, err = Open("db", o)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "MANIFEST is corrupt at offset 0: missing, though there is "+tableName(2))
}

func TestReplayStopsAtGapAndDropsLaterLogs(t *testing.T) {
	o := &Options{FS: vfs.NewMem(), MemtableBytes: minMemtableBytes}
	h := history{seed: 5}
	// Block the flusher, so that there are several logs.
	gate := vfs.NewFault(o.FS, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, tableSuffix) {
			return vfs.ErrNoSpace
		}
		return nil
	})
	last := 0
	for _, logs := range []int{2, 3} { // every DB begins one
		db, err := Open("db", &Options{FS: gate, MemtableBytes: minMemtableBytes})
		require.NoError(t, err)
		for len(namesIn(t, o.FS, "db", logSuffix)) < logs {
			last++
			require.NoError(t, db.Apply(h.batch(last)))
		}
		require.NoError(t, db.Close())
	}
	logs := namesIn(t, o.FS, "db", logSuffix)

	require.NoError(t, o.FS.Remove(filepath.Join("db", logs[1])))
	reader, err := Open("db", &Options{FS: o.FS, ReadOnly: true})
	require.NoError(t, err)
	state, err := read(reader)
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	for range 2 {
		db, err := Open("db", o)
		require.NoError(t, err)
		again, err := read(db)
		require.NoError(t, err)
		require.Equal(t, state, again)
		require.NoError(t, db.Close())
		require.Empty(t, namesIn(t, o.FS, "db", logSuffix), "logs after the gap must not be replayed later")
	}
	require.NotEmpty(t, state)
	require.NotEqual(t, fmt.Sprint(last), state["counter"])
}

// TestLossOfSyncedLogIsCorruption: the sync mark of any later log proves that the lost
// log was durable. Only the log next to the gap used to be searched for marks, and the
// last mark of each log but the newest may itself be lost.
func TestLossOfSyncedLogIsCorruption(t *testing.T) {
	for lostMarks := range 3 { // of the logs after the lost one
		o := memOptions()
		mem := o.FS
		o.FS = vfs.NewFault(mem, func(op vfs.Op) error { // keeps all logs
			if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, tableSuffix) {
				return vfs.ErrNoSpace
			}
			return nil
		})
		db, err := Open("db", o)
		require.NoError(t, err)
		for i := range 4 {
			db.commit.advance(func() { db.writer.begin() })
			set(t, db, fmt.Sprint("key", i), "value")
		}
		require.NoError(t, db.Sync())
		require.NoError(t, db.Close())
		o.FS = mem
		logs := namesIn(t, o.FS, "db", logSuffix)
		require.Len(t, logs, 4)
		require.NoError(t, o.FS.Remove(filepath.Join("db", logs[0])))
		for _, name := range logs[1 : 1+lostMarks] {
			f, err := o.FS.OpenAppend(filepath.Join("db", name))
			require.NoError(t, err)
			info, err := f.Stat()
			require.NoError(t, err)
			const markBytes = 44
			require.NoError(t, f.Truncate(info.Size-markBytes))
			require.NoError(t, f.Close())
		}
		_, err = Open("db", o)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, logs[1+lostMarks])
	}
}

func TestRecoveryKeepsToTheMemtableSize(t *testing.T) {
	mem := vfs.NewMem()
	db, err := Open("db", &Options{FS: mem})
	require.NoError(t, err)
	for i := range 2000 {
		set(t, db, fmt.Sprintf("key%04d", i), "value")
	}
	require.NoError(t, db.Close())
	for range 2 { // the log covers several memtables, some of them flushed
		db, err = Open("db", &Options{FS: mem, MemtableBytes: 16 << 10})
		require.NoError(t, err)
		require.LessOrEqual(t, db.Stats().MemtableBytes, (maxWaiting+1)*db.mostMemtableBytes())
		for i := range 2000 {
			requireValue(t, db, fmt.Sprintf("key%04d", i), "value")
		}
		require.NoError(t, db.Close())
	}
}

func TestReadOnlyWritesNothingAndNeedsNoLock(t *testing.T) {
	mem := vfs.NewMem()
	readOnly := &Options{ReadOnly: true, FS: vfs.NewFault(mem, func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpOpen, vfs.OpStat, vfs.OpList, vfs.OpMap, vfs.OpReadAt, vfs.OpClose:
			return nil
		}
		return fmt.Errorf("%v on a read-only file system", op)
	})}
	_, err := Open("db", readOnly)
	require.ErrorIs(t, err, ErrNoStore)

	db := open(t, "db", &Options{FS: mem})
	set(t, db, "table", "1")
	require.NoError(t, db.Flush())
	set(t, db, "log", "2")
	reader := open(t, "db", readOnly)
	set(t, db, "later", "3")
	requireValue(t, reader, "table", "1")
	requireValue(t, reader, "log", "2")
	requireMissing(t, reader, "later")
	require.NoError(t, reader.Check())
	for name, err := range map[string]error{
		"Set": reader.Set(nil, nil), "Delete": reader.Delete(nil), "Apply": reader.Apply(new(Batch)),
		"Flush": reader.Flush(), "Sync": reader.Sync(),
	} {
		require.ErrorIs(t, err, ErrReadOnly, name)
	}
	require.NoError(t, reader.WaitIdle(t.Context()))
	changed, err := reader.Refresh(t.Context())
	require.NoError(t, err)
	require.False(t, changed)
}

func TestRefreshShowsFlushedWrites(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	follower := open(t, "db", &Options{FS: o.FS, Follow: true})
	refresh := func() bool {
		t.Helper()
		changed, err := follower.Refresh(t.Context())
		require.NoError(t, err)
		return changed
	}
	require.False(t, refresh())
	set(t, db, "a", "1")
	require.False(t, refresh(), "not flushed yet")
	require.NoError(t, db.Flush())
	requireMissing(t, follower, "a")
	require.True(t, refresh())
	require.False(t, refresh())
	snapshot := follower.NewSnapshot()
	set(t, db, "a", "2")
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context())) // the snapshot's table is unlinked
	require.True(t, refresh())
	requireValue(t, follower, "a", "2")
	requireValue(t, snapshot, "a", "1")
	require.NoError(t, snapshot.Close())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := follower.Refresh(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCheckpointCopiesAcrossFileSystems(t *testing.T) {
	mem := vfs.NewMem()
	db := open(t, "db", &Options{FS: vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpLink {
			return vfs.ErrCrossDevice
		}
		return nil
	})})
	set(t, db, "a", "1")
	require.NoError(t, db.Checkpoint("copy"))
	set(t, db, "a", "2")
	copied := open(t, "copy", &Options{FS: mem})
	requireValue(t, copied, "a", "1")
	require.NoError(t, copied.Check())
	require.NoError(t, mem.MkdirAll("empty"))
	require.ErrorIs(t, db.Checkpoint("empty"), ErrExists)
}

func TestBuilder(t *testing.T) {
	o := memOptions()
	b, err := NewBuilder("db", o)
	require.NoError(t, err)
	for i := range 1000 {
		require.NoError(t, b.Set(fmt.Appendf(nil, "key%04d", i), fmt.Append(nil, i)))
	}
	require.NoError(t, b.Finish())
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Set([]byte("z"), nil), ErrClosed)
	_, err = NewBuilder("db", o)
	require.ErrorIs(t, err, ErrExists)

	db := open(t, "db", o)
	require.Len(t, db.Stats().Tables, 1)
	requireValue(t, db, "key0999", "999")
	require.NoError(t, db.Check())
	set(t, db, "key0999", "newer")
	require.NoError(t, db.Flush())
	requireValue(t, db, "key0999", "newer")
}

// TestSpoolFaults: if the spool of a table cannot be created, written or read, Finish returns
// the error, and no file stays.
func TestSpoolFaults(t *testing.T) {
	fault := errors.New("injected")
	for _, kind := range []vfs.OpKind{vfs.OpCreate, vfs.OpWrite, vfs.OpReadAt} {
		t.Run(kind.String(), func(t *testing.T) {
			mem := vfs.NewMem()
			b, err := NewBuilder("db", &Options{FS: vfs.NewFault(mem, func(op vfs.Op) error {
				if op.Kind == kind && filepath.Ext(op.Name) == spoolSuffix {
					return fault
				}
				return nil
			})})
			require.NoError(t, err)
			key := make([]byte, 0, 20)
			for i := 0; i < 300_000 && err == nil; i++ {
				key = fmt.Appendf(key[:0], "%020d", i)
				err = b.Set(key, nil)
			}
			require.ErrorIs(t, b.Finish(), fault)
			require.NoError(t, b.Close())
			require.Empty(t, namesIn(t, mem, "db", tableSuffix))
			require.Empty(t, namesIn(t, mem, "db", spoolSuffix))
		})
	}
}

func TestBuilderThatFailsOrIsAbandonedLeavesAnEmptyStore(t *testing.T) {
	o := memOptions()
	for name, second := range map[string]string{"duplicate": "b", "out of order": "a"} {
		b, err := NewBuilder("db", o)
		require.NoError(t, err)
		require.NoError(t, b.Set([]byte("b"), nil))
		require.ErrorIs(t, b.Set([]byte(second), nil), ErrOutOfOrder, name)
		require.ErrorIs(t, b.Finish(), ErrOutOfOrder, name)
		require.NoError(t, b.Close())
		require.NoError(t, b.Close())
	}
	b, err := NewBuilder("db", o)
	require.NoError(t, err)
	require.ErrorIs(t, b.Set(make([]byte, MaxKeyBytes+1), nil), ErrKeyTooLarge)
	require.NoError(t, b.Close())
	b, err = NewBuilder("db", o)
	require.NoError(t, err)
	require.NoError(t, b.Finish(), "of nothing")
	db := open(t, "db", o)
	it := db.NewIter(nil)
	require.Empty(t, contents(t, it))
	require.NoError(t, it.Close())
	require.Empty(t, namesIn(t, o.FS, "db", tableSuffix))
}

func TestBudgetBoundsMemtablesAndPins(t *testing.T) {
	budget := NewBudget(1 << 20)
	o := &Options{FS: vfs.NewMem(), Budget: budget}
	first, second := open(t, "first", o), open(t, "second", o)
	value := make([]byte, 500)
	var pins []*Snapshot
	refused := false
	for i := range 20_000 {
		db := []*DB{first, second}[i%2]
		require.NoError(t, db.Set(fmt.Append(nil, i), value))
		if i%100 == 0 && !refused {
			s := db.NewSnapshot()
			pins = append(pins, s)
			_, err := s.Get(nil, []byte("0"))
			refused = err != nil
			if refused {
				require.ErrorIs(t, err, ErrBudget)
				it := s.NewIter(nil)
				require.False(t, it.First())
				require.ErrorIs(t, it.Err(), ErrBudget)
				require.NoError(t, it.Close())
			}
		}
		filters := first.Stats().Filter.ResidentBytes + second.Stats().Filter.ResidentBytes
		require.LessOrEqual(t, budget.used.Load()+filters, budget.bytes)
	}
	require.True(t, refused)
	for _, s := range pins {
		require.NoError(t, s.Close())
	}
	require.Zero(t, first.Stats().Pinned)
	it := first.NewIter(nil)
	require.True(t, it.First())
	require.NoError(t, it.Close())
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	require.Zero(t, budget.used.Load())
	require.Equal(t, BudgetStats{Bytes: 1 << 20}, budget.Stats())
	require.Zero(t, budget.stores.Load())
}
