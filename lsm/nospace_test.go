package lsm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// writer applies a history to a store and tracks the expected contents.
type writer struct {
	history
	db    *DB
	state map[string]string
	next  int
}

// write applies n batches, or until one fails.
func (w *writer) write(n int) error {
	for range n {
		w.next++
		if err := w.db.Apply(w.batch(w.next)); err != nil {
			return err
		}
		w.apply(w.state, w.next)
	}
	return nil
}

// requireState compares the contents of the store, also after reopening, with the
// acknowledged writes.
func (w *writer) requireState(t *testing.T, o *Options) {
	t.Helper()
	got, err := read(w.db)
	require.NoError(t, err)
	require.Equal(t, w.state, got)
	require.NoError(t, w.db.Check())
	require.NoError(t, w.db.Close())
	again := open(t, w.db.env.dir, o)
	got, err = read(again)
	require.NoError(t, err)
	require.Equal(t, w.state, got)
	require.NoError(t, again.Close())
}

// fillUp writes until the disk is full, then requires that reads work, and that writes
// work after makeRoom.
func fillUp(t *testing.T, w *writer, o *Options, makeRoom func()) {
	err := w.write(1_000_000)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	got, err := read(w.db)
	require.NoError(t, err)
	require.Equal(t, w.state, got)
	makeRoom()
	for w.db.Flush() != nil { // until the flusher has retried
	}
	require.NoError(t, w.write(100))
	require.NoError(t, w.db.Flush())
	for w.db.WaitIdle(t.Context()) != nil {
	}
	require.NoError(t, w.db.Stats().Problem)
	w.requireState(t, o)
}

func TestWritesResumeWhenThereIsSpaceAgain(t *testing.T) {
	mem := vfs.NewMem()
	o := &Options{MemtableBytes: 16 << 10, FS: mem}
	w := &writer{history: history{seed: 7}, db: open(t, "db", o), state: map[string]string{}}
	require.NoError(t, w.write(100))
	mem.SetCapacity(1) // no file can grow
	fillUp(t, w, o, func() { mem.SetCapacity(1 << 30) })
}

// TestFullFileSystem fills a small real file system.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := mountSmall(dir, 2<<20); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unmount(dir)) }) // after the stores are closed
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 1280<<10), 0o600))
	o := &Options{MemtableBytes: 64 << 10}
	w := &writer{history: history{seed: 8}, db: open(t, filepath.Join(dir, "db"), o), state: map[string]string{}}
	n := 0
	fill := func() (err error) { // with distinct keys
		for ; err == nil; n++ {
			key, value := fmt.Appendf(nil, "fill%d", n), make([]byte, 500)
			if err = w.db.Set(key, value); err == nil {
				w.state[string(key)] = string(value)
			}
		}
		return err
	}
	require.ErrorIs(t, fill(), vfs.ErrNoSpace)
	fillUp(t, w, o, func() { require.NoError(t, os.Remove(ballast)) })
}

// TestWritesContinueInNewLog makes a log fail in several ways.
func TestWritesContinueInNewLog(t *testing.T) {
	torn := &vfs.ShortError{Bytes: 20, Err: vfs.ErrNoSpace}
	for name, c := range map[string]struct {
		kind       vfs.OpKind
		failure    error
		durability Durability
		writes     int // before the failure
	}{
		"a record is torn":            {vfs.OpAppend, torn, ProcessCrash, 10},
		"the first record is torn":    {vfs.OpAppend, torn, ProcessCrash, 0},
		"a record is not written":     {vfs.OpAppend, vfs.ErrNoSpace, PowerLoss, 10},
		"a log is not synced":         {vfs.OpAppendSync, errors.New("bad disk"), PowerLoss, 10},
		"a directory is not synced":   {vfs.OpSyncDir, errors.New("bad disk"), PowerLoss, 0},
		"a log is not created, once":  {vfs.OpCreateAppendMap, vfs.ErrNoSpace, ProcessCrash, 0},
		"a record fails, and a flush": {vfs.OpAppend, vfs.ErrNoSpace, ProcessCrash, 20},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			var armed, flushFails atomic.Bool
			o := &Options{Durability: c.durability, FS: vfs.NewFault(mem, func(op vfs.Op) error {
				if flushFails.Load() && op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
					return vfs.ErrNoSpace
				}
				if op.Kind == c.kind && armed.CompareAndSwap(true, false) {
					return c.failure
				}
				return nil
			})}
			w := &writer{history: history{seed: 9}, db: open(t, "db", o), state: map[string]string{}}
			require.NoError(t, w.write(c.writes))
			if c.kind == vfs.OpAppend && c.writes == 0 { // after the header of the log
				require.NoError(t, w.db.commit.exclusive(func() error { return w.db.writer.newLog(0) }))
			}
			flushFails.Store(c.writes == 20)
			armed.Store(true)
			err := w.write(1)
			require.False(t, armed.Load())
			if c.kind == vfs.OpAppendSync || c.kind == vfs.OpSyncDir {
				require.NoError(t, err, "it is durable as a table")
				require.NotEmpty(t, w.db.Stats().Tables)
			} else {
				require.ErrorIs(t, err, vfs.ErrNoSpace)
			}
			got, err := read(w.db)
			require.NoError(t, err)
			require.Equal(t, w.state, got)
			if flushFails.Load() {
				require.ErrorIs(t, w.db.Flush(), vfs.ErrNoSpace)
				require.ErrorIs(t, w.write(1), vfs.ErrNoSpace)
				require.ErrorIs(t, w.db.Stats().Problem, vfs.ErrNoSpace)
				flushFails.Store(false)
				for w.write(1) != nil { // until the flusher has retried
				}
			}
			require.NoError(t, w.write(20))
			require.NoError(t, w.db.Sync())

			// Whatever the failed log has, later writes win.
			for _, keep := range []vfs.Keep{vfs.KeepAll, vfs.KeepSynced} {
				crashed := open(t, "db", &Options{FS: mem.CrashClone(keep)})
				got, err := read(crashed)
				require.NoError(t, err)
				require.True(t, maps.Equal(w.state, got))
				require.NoError(t, crashed.Close())
			}
			w.requireState(t, o)
		})
	}
}

// TestRepeatedLogCreationFailureHasEqualMessages: a caller that logs changed errors
// logs it once.
func TestRepeatedLogCreationFailureHasEqualMessages(t *testing.T) {
	db := open(t, "db", &Options{FS: vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpCreateAppendMap {
			return fmt.Errorf("%s: %w", op.Name, vfs.ErrNoSpace)
		}
		return nil
	})})
	first := db.Set([]byte("a"), nil)
	require.ErrorIs(t, first, vfs.ErrNoSpace)
	for range 3 {
		require.EqualError(t, db.Set([]byte("a"), nil), first.Error())
	}
}

func TestMergeChecksFreeSpace(t *testing.T) {
	mem := vfs.NewMem()
	var free atomic.Int64
	var created atomic.Int64
	o := &Options{MemtableBytes: minMemtableBytes, Durability: None, FS: roomFS{vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			created.Add(1)
		}
		return nil
	}), &free}}
	db := open(t, "db", o)
	set(t, db, "a", "1")
	require.NoError(t, db.Flush())
	set(t, db, "b", "2")
	require.NoError(t, db.Flush())
	err := db.WaitIdle(t.Context())
	for ; err == nil; err = db.WaitIdle(t.Context()) { // until the merge begins
	}
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.ErrorContains(t, err, "bytes in db, 0 are free")
	require.EqualValues(t, 2, created.Load(), "only flushes created files")
	requireValue(t, db, "a", "1")
	set(t, db, "c", "3")
	require.NoError(t, db.Flush(), "writes still work")

	need := 2 * db.memtableBytes()
	for _, table := range db.Stats().Tables {
		need += int64(table.Bytes)
	}
	free.Store(need - 1)
	require.ErrorIs(t, db.roomForMerge(db.schedule.current.Load().tables), vfs.ErrNoSpace)
	free.Store(need)
	for db.WaitIdle(t.Context()) != nil { // until the merge was retried
	}
	require.Len(t, db.Stats().Tables, 1)
	require.NoError(t, db.Check())
}

// roomFS is an FS with an adjustable number of free bytes.
type roomFS struct {
	vfs.FS
	free *atomic.Int64
}

func (f roomFS) Free(string) (vfs.Space, error) { return vfs.Space{Bytes: f.free.Load()}, nil }

// TestPowerLossBehindALogOfAnEarlierProcess: the sync of the log failed in that
// process, and another sync would succeed without its bytes. Its writes are durable
// once Sync returns nil.
func TestPowerLossBehindALogOfAnEarlierProcess(t *testing.T) {
	for _, durability := range []Durability{ProcessCrash, PowerLoss} {
		mem := vfs.NewMem()
		o := &Options{Durability: durability, FS: vfs.NewFault(mem, func(op vfs.Op) error {
			switch {
			case op.Kind == vfs.OpAppendSync:
				return &vfs.LostPagesError{Err: errors.New("bad disk")}
			case op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix:
				return vfs.ErrNoSpace
			}
			return nil
		})}
		w := &writer{history: history{seed: 9}, db: open(t, "db", o), state: map[string]string{}}
		require.ErrorIs(t, errors.CombineErrors(w.write(20), w.db.Sync()), vfs.ErrNoSpace)
		killed := mem.ProcessCrashClone()
		require.NoError(t, w.db.Close())

		w.db = open(t, "db", &Options{Durability: durability, FS: killed})
		var err error
		w.state, err = read(w.db)
		require.NoError(t, err)
		require.NoError(t, w.write(1))
		require.NoError(t, w.db.Sync())
		require.NoError(t, w.write(1))
		require.NoError(t, w.db.Sync())
		after := open(t, "db", &Options{FS: killed.CrashClone(vfs.KeepSynced)})
		got, err := read(after)
		require.NoError(t, err)
		require.Equal(t, w.state, got)
	}
}
