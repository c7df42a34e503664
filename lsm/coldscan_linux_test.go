package lsm

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestColdScanReadsAhead scans a table outside the page cache in both directions: it
// waits for the disk for few of its pages, and without read-ahead for most of them.
func TestColdScanReadsAhead(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, nil)
	const n = 100_000
	var key []byte
	for i := range n {
		key = benchKey(key, uint64(i))
		require.NoError(t, db.Set(key, make([]byte, benchValueBytes)))
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	require.Len(t, db.Stats().Tables, 1)
	table := db.schedule.current.Load().tables[0]
	path, blocks := table.path, table.blocks
	require.NoError(t, db.Close()) // mapped pages stay in the page cache
	for _, backward := range []bool{false, true} {
		without := coldScanWaits(t, path, n, backward, false)
		with := coldScanWaits(t, path, n, backward, true)
		t.Logf("backward %v: %d blocks, %d waits without reading ahead, %d with", backward, blocks, without, with)
		require.Less(t, with, blocks/4, "backward %v", backward)
		if without < blocks/2 {
			t.Skip("a scan without read-ahead does not wait either: the test's directory is in memory or on a fast disk")
		}
	}
}

// coldScanWaits scans a store with one table of n entries, nearly all outside the page
// cache, and returns the number of major faults.
func coldScanWaits(t *testing.T, path string, n int, backward, readsAhead bool) int {
	t.Helper()
	db, err := Open(filepath.Dir(path), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	file, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	require.NoError(t, file.Close())
	db.schedule.current.Load().tables[0].randomAccess = readsAhead

	it := db.NewIter(nil)
	move, step := it.First, it.Next
	if backward {
		move, step = it.Last, it.Prev
	}
	before := majorFaults(t)
	count := 0
	for ok := move(); ok; ok = step() {
		count++
	}
	waited := majorFaults(t) - before
	require.NoError(t, it.Err())
	require.NoError(t, it.Close())
	require.Equal(t, n, count)
	return waited
}

// majorFaults returns the number of pages for which this process has waited for the
// disk.
func majorFaults(t *testing.T) int {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return int(usage.Majflt)
}
