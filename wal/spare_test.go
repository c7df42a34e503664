package wal

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// lives writes consecutive logs to one reused file, as a store does.
type lives struct {
	t       *testing.T
	fs      vfs.FS
	w       *Writer
	number  uint64
	payload int // bytes of each record, equal in all lives so that records have the same offsets

	appended []record // in this life
	synced   int      // number of synced records
}

func (l *lives) name() string { return fmt.Sprintf("d/%d.wal", l.number) }

func (l *lives) begin() {
	l.number = 1
	var err error
	l.w, err = Create(l.name(), 1, &Options{FS: l.fs, Capacity: 30_000})
	require.NoError(l.t, err)
	require.NoError(l.t, l.fs.SyncDir("d"))
}

// again begins the next life and reuses the sequence numbers of the previous one.
func (l *lives) again() {
	before := l.name()
	require.NoError(l.t, l.fs.Rename(before, "d/spare"))
	spare, err := l.w.Retire()
	require.NoError(l.t, err)
	l.appended, l.synced = nil, 0
	l.number++
	l.w, err = spare.Create(l.name(), l.number)
	require.NoError(l.t, err)
	require.NoError(l.t, l.fs.Rename("d/spare", l.name()))
}

func (l *lives) append() {
	r := makeRecord(uint64(len(l.appended)+1), l.payload)
	l.appended = append(l.appended, r)
	require.NoError(l.t, l.w.Append(r.sequence, r.payload))
}

func (l *lives) sync() {
	require.NoError(l.t, l.fs.SyncDir("d"))
	require.NoError(l.t, l.w.Sync())
	l.synced = len(l.appended)
}

// TestReusedFilePowerCut cuts the power before operations on a file that is reused
// several times, with every subset of lost pages. An unsynced page has its contents of
// a previous log, at the offsets and with the sequence numbers of the current log.
// Replay must never return these records.
func TestReusedFilePowerCut(t *testing.T) {
	random := testseed.Rand(t)
	tally := crashtest.NewTally(t, "crashes")
	for _, payload := range []int{10, 300, 4096 - recordHeaderBytes, 5000} {
		mem := vfs.NewMem()
		require.NoError(t, mem.MkdirAll("d"))
		require.NoError(t, mem.SyncDir("."))
		l := &lives{t: t, payload: payload}
		l.fs = vfs.NewFault(mem, func(op vfs.Op) error {
			if random.IntN(crashtest.Share(5, 1)) != 0 && op.Kind == vfs.OpAppend {
				return nil
			}
			for _, way := range crashtest.Ways(random) {
				tally.Case()
				clone := mem.CrashClone(way.Keep)
				names, err := clone.List("d")
				require.NoError(t, err)
				for _, name := range names { // including spare files and the results of lost renames
					got, _, err := replayAll(clone, "d/"+name)
					require.NoError(t, err, "%s before %v, %s kept", name, op, way.Name)
					if way.ProcessOnly && "d/"+name == l.name() && op.Kind == vfs.OpAppend {
						require.GreaterOrEqual(t, len(got)+1, len(l.appended))
					}
					if "d/"+name == l.name() {
						require.GreaterOrEqual(t, len(got), l.synced, way.Name)
						requirePrefix(t, l.appended, got)
					}
				}
			}
			return nil
		})
		l.begin()
		for life := range 4 {
			for range 1 + random.IntN(min(20, 19_000/(payload+100))-1) {
				l.append()
			}
			if life < 3 {
				l.again()
			}
		}
		l.append()
		l.sync()
		for range min(10, 5_000/(payload+100)) {
			l.append()
		}
		require.NoError(t, l.w.Close())
	}
}

func TestRetireErasesRecords(t *testing.T) {
	mem := vfs.NewMem()
	w, err := Create("1.wal", 1, &Options{FS: mem, Capacity: 1000})
	require.NoError(t, err)
	require.NoError(t, w.Append(1, makeRecord(1, 500).payload))
	require.True(t, w.Reusable())
	spare, err := w.Retire()
	require.NoError(t, err)
	require.ErrorIs(t, w.Append(2, nil), ErrClosed)
	require.ErrorIs(t, w.Sync(), ErrClosed)
	require.False(t, w.Reusable())
	_, err = w.Retire()
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, w.Close(), "the spare owns the file")
	require.EqualValues(t, 1000, spare.Capacity())
	got, result, err := replayAll(mem, "1.wal")
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, Result{Torn: true}, result)

	w, err = spare.Create("2.wal", 2)
	require.NoError(t, err)
	require.NoError(t, mem.Rename("1.wal", "2.wal"))
	require.NoError(t, w.Append(7, []byte("new")))
	require.EqualValues(t, headerBytes+recordHeaderBytes+3, w.Size())
	got, result, err = replayAll(mem, "2.wal")
	require.NoError(t, err)
	require.Equal(t, []record{{7, []byte("new")}}, got)
	require.EqualValues(t, 2, result.Number)
	require.True(t, result.Torn, "bytes of the previous log follow")
	require.NoError(t, w.Close())
	got, result, err = replayAll(mem, "2.wal")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.False(t, result.Torn, "Close truncates the file")
}

// TestSyncedLogIsNotReused: its mark would claim durability for bytes of the next log.
func TestSyncedLogIsNotReused(t *testing.T) {
	w, err := Create("1.wal", 1, &Options{FS: vfs.NewMem(), Capacity: 1000})
	require.NoError(t, err)
	require.NoError(t, w.Append(1, nil))
	require.NoError(t, w.Sync())
	require.False(t, w.Reusable())
	_, err = w.Retire()
	require.ErrorIs(t, err, errMarked)
	require.NoError(t, w.Append(2, nil), "the log remains usable")
	require.NoError(t, w.Close())
}

func TestRetireAndCreateFail(t *testing.T) {
	fails := vfs.OpAppendRestart
	fs := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == fails {
			return syscall.EIO
		}
		return nil
	})
	w, err := Create("1.wal", 1, &Options{FS: fs, Capacity: 1000})
	require.NoError(t, err)
	_, err = w.Retire()
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, w.Append(1, nil), syscall.EIO, "the first failure is final")
	require.NoError(t, w.Close())

	fails = vfs.OpMap // none
	w, err = Create("2.wal", 2, &Options{FS: fs, Capacity: 1000})
	require.NoError(t, err)
	spare, err := w.Retire()
	require.NoError(t, err)
	fails = vfs.OpAppend
	_, err = spare.Create("3.wal", 3)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "3.wal")
	require.NoError(t, spare.Close())
}
