package table

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestColdScanReadsAhead scans a table outside the page cache in both directions: it
// waits for the disk for few of its pages, and without read-ahead for most of them.
func TestColdScanReadsAhead(t *testing.T) {
	env := testEnv()
	env.FS = vfs.OS
	path := filepath.Join(t.TempDir(), "table")
	w, err := Create(env, path, path+".spool", 1, false)
	require.NoError(t, err)
	for i := range 100_000 {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		require.NoError(t, w.Add([]kv.Entry{{Key: key, Value: make([]byte, 96)}}, false))
	}
	facts, err := w.Finish(1, 1)
	require.NoError(t, err)
	const blocks = 100_000 / 39
	for _, backward := range []bool{false, true} {
		without := coldScanWaits(t, env, path, facts, backward, false)
		with := coldScanWaits(t, env, path, facts, backward, true)
		t.Logf("backward %v: %d blocks, %d waits without reading ahead, %d with", backward, blocks, without, with)
		require.Less(t, with, blocks/4, "backward %v", backward)
		if without < blocks/2 {
			t.Skip("a scan without read-ahead does not wait either: the test's directory is in memory or on a fast disk")
		}
	}
}

// coldScanWaits scans a table, nearly all outside the page cache, and returns the number
// of major faults.
func coldScanWaits(t *testing.T, env *Env, path string, facts Facts, backward, readsAhead bool) int {
	t.Helper()
	r, err := Open(env, path, facts)
	require.NoError(t, err)
	defer r.close()
	file, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	require.NoError(t, file.Close())
	r.randomAccess = readsAhead

	it := r.iterator()
	defer it.Release()
	move, step := it.First, it.Next
	if backward {
		move, step = it.Last, it.Prev
	}
	before := scanFaults(t)
	count := uint64(0)
	for ok := move(); ok; ok = step() {
		count++
	}
	waited := scanFaults(t) - before
	require.NoError(t, it.Err())
	require.Equal(t, facts.Entries, count)
	return waited
}

// scanFaults returns the number of pages for which this process has waited for the
// disk.
func scanFaults(t *testing.T) int {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return int(usage.Majflt)
}
