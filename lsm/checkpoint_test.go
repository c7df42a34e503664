package lsm

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// requireCheckpoint opens a checkpoint and requires that it has a state, passes Check
// and accepts writes.
func requireCheckpoint(t *testing.T, fsys vfs.FS, dir string, want map[string]string) {
	t.Helper()
	db, err := Open(dir, &Options{FS: fsys, MemtableBytes: minMemtableBytes})
	require.NoError(t, err)
	got, err := read(db)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, db.Check())
	set(t, db, "later", "write")
	require.NoError(t, db.Flush())
	require.NoError(t, db.Close())
	db, err = Open(dir, &Options{FS: fsys})
	require.NoError(t, err)
	requireValue(t, db, "later", "write")
	require.NoError(t, db.Close())
}

// TestCheckpointOfReader: a read-only DB creates a checkpoint of the state that it
// shows, including writes in logs, whether or not its tables were removed meanwhile.
func TestCheckpointOfReader(t *testing.T) {
	for n := range uint64(2) { // few and many keys: see history
		r := testseed.Rand(t)
		h := newHistory(r.Uint64()<<1|n, 300)
		mem := vfs.NewMem()
		o := &Options{FS: mem, MemtableBytes: minMemtableBytes}
		db := open(t, "db", o)
		vanished, written := 0, 0
		// With few seeds 300 writes merge no table of a reader.
		for i := 1; i <= 300 || vanished == 0 && i <= 3000; i++ {
			require.NoError(t, db.Apply(h.batch(i)))
			written = i
			if r.IntN(20) != 0 {
				continue
			}
			reader, err := Open("db", &Options{FS: mem, MemtableBytes: minMemtableBytes, ReadOnly: true})
			require.NoError(t, err)
			if at := i; r.IntN(2) == 0 {
				for more := at + r.IntN(60); i < more; {
					i++
					require.NoError(t, db.Apply(h.batch(i)))
					written = i
				}
				require.NoError(t, db.Flush())
				require.NoError(t, db.WaitIdle(t.Context()))
				for _, table := range reader.schedule.current.Load().tables {
					if _, err := mem.Stat(table.Path); isNotExist(err) {
						vanished++
					}
				}
			}
			want, err := read(reader)
			require.NoError(t, err)
			name := fmt.Sprint("checkpoint", i)
			require.NoError(t, reader.Checkpoint(name))
			require.ErrorIs(t, reader.Checkpoint(name), ErrExists)
			shown := reader.schedule.current.Load()
			require.NoError(t, reader.Close())
			require.True(t, shown.released.Load(), "tables stay mapped")
			require.ErrorIs(t, reader.Checkpoint("closed"), ErrClosed)
			requireCheckpoint(t, mem, name, want)
		}
		require.Positive(t, vanished, "no table of a reader was merged")
		got, err := read(db)
		require.NoError(t, err)
		require.Equal(t, h.stateAt(written)["key00"], got["key00"], "the store is still writable")
	}
}

// TestCheckpointsDuringWrites, on real files and mapped logs: each checkpoint is the
// state after some write, at least the last one that had returned when it began.
func TestCheckpointsDuringWrites(t *testing.T) {
	dir := t.TempDir()
	h := history{seed: testseed.Rand(t).Uint64() | 1}
	db := open(t, dir+"/db", &Options{MemtableBytes: minMemtableBytes})
	var writing sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer writing.Wait()
	defer stop()
	require.NoError(t, db.Apply(h.batch(1)))
	writing.Go(func() {
		for i := 2; ctx.Err() == nil; i++ {
			if err := db.Apply(h.batch(i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for n := range 6 {
		before, err := db.Get(nil, []byte("counter"))
		require.NoError(t, err)
		reader, err := Open(dir+"/db", &Options{ReadOnly: true})
		require.NoError(t, err)
		name := fmt.Sprint(dir, "/checkpoint", n)
		require.NoError(t, reader.Checkpoint(name))
		require.NoError(t, reader.Close())

		copied, err := Open(name, nil)
		require.NoError(t, err)
		got, err := read(copied)
		require.NoError(t, err)
		require.NoError(t, copied.Check())
		require.NoError(t, copied.Close())
		var least, at int
		_, err = fmt.Sscan(string(before)+" "+got["counter"], &least, &at)
		require.NoError(t, err)
		require.GreaterOrEqual(t, at, least)
		require.True(t, maps.Equal(h.stateAt(at), got), "not the state after write %d", at)
	}
}

// TestCheckpointOfReaderOnFailingDisk: a failure at any operation leaves a complete
// checkpoint or none, and the next attempt succeeds.
func TestCheckpointOfReaderOnFailingDisk(t *testing.T) {
	for k := 0; ; k++ {
		mem := vfs.NewMem()
		db := open(t, "db", &Options{FS: mem})
		set(t, db, "table", "1")
		require.NoError(t, db.Flush())
		set(t, db, "log", "2")
		operations, armed := 0, false
		broken := fmt.Errorf("broken disk")
		reader := open(t, "db", &Options{ReadOnly: true, FS: vfs.NewFault(mem, func(op vfs.Op) error {
			if !armed || op.Kind == vfs.OpRemove || op.Kind == vfs.OpClose {
				return nil // a table that could not be finished is removed
			}
			operations++
			if operations == k+1 {
				return broken
			}
			return nil
		})})
		armed = true
		err := reader.Checkpoint("copy")
		armed = false
		want := map[string]string{"table": "1", "log": "2"}
		if operations <= k {
			require.NoError(t, err)
			require.Greater(t, k, 10, "too few operations")
			requireCheckpoint(t, mem, "copy", want)
			return
		}
		require.ErrorIs(t, err, broken, "operation %d", k)
		if _, err := mem.Stat("copy"); err == nil {
			requireCheckpoint(t, mem, "copy", want)
			continue
		}
		require.NoError(t, reader.Checkpoint("copy"))
		requireCheckpoint(t, mem, "copy", want)
	}
}

// TestCheckpointDetectsReplacedTable: a table replaced by another file is not copied.
func TestCheckpointDetectsReplacedTable(t *testing.T) {
	mem := vfs.NewMem()
	for _, dir := range []string{"db", "other"} {
		db := open(t, dir, &Options{FS: mem})
		set(t, db, "a", dir)
		require.NoError(t, db.Flush())
	}
	reader := open(t, "db", &Options{FS: mem, ReadOnly: true})
	table := namesIn(t, mem, "db", tableSuffix)[0]
	require.Equal(t, []string{table}, namesIn(t, mem, "other", tableSuffix))
	require.NoError(t, mem.Rename("other/"+table, "db/"+table))
	require.ErrorIs(t, reader.Checkpoint("copy"), ErrCorrupt)
	_, err := mem.Stat("copy")
	require.True(t, isNotExist(err))
}

// TestCheckpointKeepsForeignFiles: Checkpoint used to remove DIR.tmp, even if it was
// not its own.
func TestCheckpointKeepsForeignFiles(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	set(t, db, "a", "1")
	const tmp = "copy" + checkpointSuffix
	for _, dir := range []string{"copy.tmp", tmp} {
		require.NoError(t, o.FS.MkdirAll(dir))
		require.NoError(t, vfs.WriteFileAtomic(o.FS, dir+"/letters.txt", []byte("mine")))
	}
	err := db.Checkpoint("copy")
	require.ErrorContains(t, err, "letters.txt")
	require.Equal(t, []string{"letters.txt"}, namesIn(t, o.FS, tmp, ""))
	require.NoError(t, o.FS.RemoveAll(tmp))
	require.NoError(t, db.Checkpoint("copy"))
	require.Equal(t, []string{"letters.txt"}, namesIn(t, o.FS, "copy.tmp", ""))
}

// TestCheckpointRemovesLeftoversOfCrash: an unfinished checkpoint does not retain
// tables, and the next attempt does not use its files.
func TestCheckpointRemovesLeftoversOfCrash(t *testing.T) {
	mem := vfs.NewMem()
	db := open(t, "db", &Options{FS: mem})
	set(t, db, "a", "1")
	var crashed *vfs.Mem
	writer := open(t, "other", &Options{FS: vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && op.Name == "copy" {
			crashed = mem.ProcessCrashClone()
		}
		return nil
	})})
	set(t, writer, "a", "2")
	require.NoError(t, writer.Checkpoint("copy"))
	require.NotNil(t, crashed)
	require.NotEmpty(t, namesIn(t, crashed, "copy"+checkpointSuffix, tableSuffix))

	next := open(t, "db", &Options{FS: crashed})
	require.NoError(t, next.Checkpoint("copy"))
	requireCheckpoint(t, crashed, "copy", map[string]string{"a": "1"})
	_, err := crashed.Stat("copy" + checkpointSuffix)
	require.True(t, isNotExist(err))
}

// TestConcurrentCheckpointsOfOneDirectory: the second does not change the files of the
// first.
func TestConcurrentCheckpointsOfOneDirectory(t *testing.T) {
	mem := vfs.NewMem()
	other := open(t, "other", &Options{FS: mem})
	set(t, other, "a", "2")
	tried := false
	db := open(t, "db", &Options{FS: vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && op.Name == "copy" {
			tried = true
			require.ErrorIs(t, other.Checkpoint("copy"), ErrLocked)
		}
		return nil
	})})
	set(t, db, "a", "1")
	require.NoError(t, db.Checkpoint("copy"))
	require.True(t, tried)
	requireCheckpoint(t, mem, "copy", map[string]string{"a": "1"})
	require.ErrorIs(t, other.Checkpoint("copy"), ErrExists)
}
