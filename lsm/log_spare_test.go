package lsm

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// logID identifies the file of the only log.
func logID(t *testing.T, fsys vfs.FS) vfs.FileID {
	t.Helper()
	logs := namesIn(t, fsys, "db", logSuffix)
	require.Len(t, logs, 1)
	info, err := fsys.Stat(filepath.Join("db", logs[0]))
	require.NoError(t, err)
	return info.ID
}

// flushed writes and flushes, and waits for the cleanup.
func flushed(t *testing.T, db *DB, key, value string) {
	t.Helper()
	set(t, db, key, value)
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
}

func TestObsoleteLogFileIsReused(t *testing.T) {
	o := memOptions()
	mem := o.FS.(*vfs.Mem)
	db := open(t, "db", o)
	set(t, db, "a", "0")
	first := logID(t, mem)
	for i := range 5 {
		flushed(t, db, "a", fmt.Sprint(i))
		require.Len(t, namesIn(t, mem, "db", spareSuffix), 1)
		require.Empty(t, namesIn(t, mem, "db", logSuffix))
		set(t, db, "b", fmt.Sprint(i))
		require.Equal(t, first, logID(t, mem))
		require.Empty(t, namesIn(t, mem, "db", spareSuffix))

		killed := open(t, "db", &Options{FS: mem.ProcessCrashClone()})
		requireValue(t, killed, "a", fmt.Sprint(i))
		requireValue(t, killed, "b", fmt.Sprint(i))
	}

	flushed(t, db, "a", "flushed")
	killed := mem.ProcessCrashClone()
	require.Len(t, namesIn(t, killed, "db", spareSuffix), 1)
	open(t, "db", &Options{FS: killed})
	require.Empty(t, namesIn(t, killed, "db", spareSuffix), "Open removes it")
	require.NoError(t, db.Close())
	require.Empty(t, namesIn(t, mem, "db", spareSuffix), "Close removes it")
}

// TestOneSpareLogAtMost makes two logs obsolete at the same time.
func TestOneSpareLogAtMost(t *testing.T) {
	o := memOptions()
	var flushing sync.Mutex // held to block flushes
	o.FS = vfs.NewFault(o.FS, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			flushing.Lock()
			defer flushing.Unlock()
		}
		return nil
	})
	db := open(t, "db", o)
	flushed(t, db, "a", "1")
	flushing.Lock()
	set(t, db, "a", "2") // in the spare one
	require.NoError(t, db.Set([]byte("large"), make([]byte, 100<<10)))
	logs := namesIn(t, o.FS, "db", logSuffix)
	flushing.Unlock()
	require.Len(t, logs, 2, "the second log has a new file")
	flushed(t, db, "a", "3")
	require.Len(t, namesIn(t, o.FS, "db", spareSuffix), 1)
	require.Empty(t, namesIn(t, o.FS, "db", logSuffix))
}

// TestSpareLogOfAnotherSizeIsRemoved: the size of memtables has changed.
func TestSpareLogOfAnotherSizeIsRemoved(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	require.NoError(t, db.Set([]byte("large"), make([]byte, 100<<10)))
	flushed(t, db, "a", "1")
	require.Len(t, namesIn(t, o.FS, "db", spareSuffix), 1)
	set(t, db, "a", "2")
	require.Empty(t, namesIn(t, o.FS, "db", spareSuffix))
	info, err := o.FS.Stat(filepath.Join("db", namesIn(t, o.FS, "db", logSuffix)[0]))
	require.NoError(t, err)
	require.Equal(t, db.memtableBytes(), info.Size)
}

// TestSyncedLogsAreRemoved: a log with a sync mark is not reused.
func TestSyncedLogsAreRemoved(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	set(t, db, "a", "1")
	require.NoError(t, db.Sync())
	flushed(t, db, "a", "2")
	require.Empty(t, namesIn(t, o.FS, "db", spareSuffix))
	require.Empty(t, namesIn(t, o.FS, "db", logSuffix))
}

// TestSpareLogIsRemovedOnFullDisk: its space may be sufficient for a table.
func TestSpareLogIsRemovedOnFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	var full atomic.Bool
	db := open(t, "db", &Options{MemtableBytes: 64 << 10, FS: vfs.NewFault(mem, func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			return vfs.ErrNoSpace
		}
		return nil
	})})
	set(t, db, "a", "1")
	require.NoError(t, db.Set([]byte("large"), make([]byte, 60<<10))) // in its own log
	flushed(t, db, "a", "2")
	require.Len(t, namesIn(t, mem, "db", spareSuffix), 1)
	full.Store(true)
	require.NoError(t, db.Set([]byte("large"), make([]byte, 100<<10))) // too large for it
	require.ErrorIs(t, db.Flush(), vfs.ErrNoSpace)
	for len(namesIn(t, mem, "db", spareSuffix)) > 0 { // until the flusher removes it
		require.ErrorIs(t, db.Flush(), vfs.ErrNoSpace)
	}
	full.Store(false)
}

// TestReadOnlyOpenWhileLogIsReused: while a store is opened read-only, the log being
// replayed becomes obsolete and its file is reused. The reader shows all writes made
// before it was opened.
func TestReadOnlyOpenWhileLogIsReused(t *testing.T) {
	for at := range 4 { // at the open, or at the n-th read
		o := &Options{FS: vfs.NewMem(), MemtableBytes: 2 << 20}
		db := open(t, "db", o)
		const keys = 1000
		fill := func(value string) {
			for i := range keys {
				set(t, db, fmt.Sprint("key", i), value+strings.Repeat(".", 600)) // more than one read
			}
		}
		fill("before")
		id := logID(t, o.FS)
		n, used := 0, false
		reader := open(t, "db", &Options{ReadOnly: true, FS: vfs.NewFault(o.FS, func(op vfs.Op) error {
			isRead := op.Kind == vfs.OpOpen || op.Kind == vfs.OpReadAt
			if !isRead || filepath.Ext(op.Name) != logSuffix || used {
				return nil
			}
			if n++; n > at {
				used = true
				flushed(t, db, "flushed", "")
				fill("after!")
				require.Equal(t, id, logID(t, o.FS))
			}
			return nil
		})})
		require.True(t, used)
		for i := range keys {
			got, err := reader.Get(nil, fmt.Append(nil, "key", i))
			require.NoError(t, err, "key %d, reused at read %d", i, at)
			require.Equal(t, "after!", string(got[:6])) // it has read the log again
		}
	}
}

// TestCheckWhileLogIsReused: Check and Scrub of the writing store reported an intact
// log as corrupt if its file was reused between its opening and a read.
func TestCheckWhileLogIsReused(t *testing.T) {
	checks := map[string]func(*DB) error{
		"check": (*DB).Check,
		"scrub": func(db *DB) error { return db.Scrub(t.Context(), math.MaxInt64, nil) },
	}
	for name, check := range checks {
		for at := range 6 { // at the open, or at the n-th read
			var reuse func()
			reads := 0
			o := &Options{MemtableBytes: 2 << 20, FS: vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
				isRead := op.Kind == vfs.OpOpen || op.Kind == vfs.OpReadAt
				if !isRead || filepath.Ext(op.Name) != logSuffix || reuse == nil {
					return nil
				}
				if reads++; reads > at {
					used := reuse
					reuse = nil
					used()
				}
				return nil
			})}
			db := open(t, "db", o)
			fill := func() {
				for i := range 1000 {
					set(t, db, fmt.Sprint("key", i), strings.Repeat(".", 600)) // more than one read
				}
			}
			fill()
			id := logID(t, o.FS)
			reuse = func() {
				flushed(t, db, "flushed", "")
				fill()
				require.Equal(t, id, logID(t, o.FS))
			}
			require.NoError(t, check(db), "%s, reused at read %d", name, at)
			require.NoError(t, check(db))
		}
	}
}

// TestReadOnlyOpenWhileLogIsRetired: the name of a log is removed before its header is
// erased. In the other order, a reader with the previous manifest took the log for an
// empty one and missed its writes.
func TestReadOnlyOpenWhileLogIsRetired(t *testing.T) {
	mem := vfs.NewMem()
	between, resume := make(chan struct{}), make(chan struct{})
	steps := 0 // of the first log: its file is renamed and restarted
	db := open(t, "db", &Options{FS: vfs.NewFault(mem, func(op vfs.Op) error {
		isStep := op.Kind == vfs.OpAppendRestart || op.Kind == vfs.OpRename && filepath.Ext(op.Name) == spareSuffix
		if isStep {
			if steps++; steps == 2 {
				close(between)
				<-resume
			}
		}
		return nil
	})})
	set(t, db, "a", "1")
	started := false
	reader, err := Open("db", &Options{ReadOnly: true, FS: vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && filepath.Ext(op.Name) == logSuffix && !started {
			started = true
			require.NoError(t, db.Flush())
			<-between
		}
		return nil
	})})
	close(resume)
	require.NoError(t, err)
	require.True(t, started)
	requireValue(t, reader, "a", "1")
	require.NoError(t, reader.Close())
}
