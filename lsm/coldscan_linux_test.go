package lsm

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAColdScanReadsAhead scans a table that is not in memory, both ways: it waits for the
// disk for a small part of its pages.
func TestAColdScanReadsAhead(t *testing.T) {
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
	path := db.current.Load().tables[0].path
	for _, backward := range []bool{false, true} {
		require.NoError(t, db.Close()) // what is mapped stays in memory
		db = open(t, dir, nil)
		blocks := db.current.Load().tables[0].blocks
		file, err := os.Open(path)
		require.NoError(t, err)
		require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
		require.NoError(t, file.Close())

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
		require.NoError(t, it.Err())
		require.NoError(t, it.Close())
		require.Equal(t, n, count)
		waited := majorFaults(t) - before
		t.Logf("backward %v: %d blocks, %d waits", backward, blocks, waited)
		require.Less(t, waited, blocks/4)
	}
}

// majorFaults counts the pages that this process has waited for the disk for.
func majorFaults(t *testing.T) int {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return int(usage.Majflt)
}
