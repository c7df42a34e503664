package lsm

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReadAheadAvoidsFaults: after ReadAhead the lookups of blocks that were not in memory
// wait for few pages, and without it for many.
func TestReadAheadAvoidsFaults(t *testing.T) {
	const entries, lookups = 50_000, 40
	db := open(t, t.TempDir(), nil)
	db.ReadAhead([][]byte{[]byte("key")})
	_, mapped := db.Resident()
	require.Zero(t, mapped, "there is no table")
	for i := range entries {
		require.NoError(t, db.Set(benchKey(nil, uint64(i)), make([]byte, benchValueBytes)))
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	table := db.schedule.current.Load().tables[0]
	var keys [][]byte
	for i := range lookups {
		keys = append(keys, benchKey(nil, uint64(i*(entries/lookups))))
	}
	waits := func(ahead bool) int {
		require.NoError(t, unix.Madvise(table.Mapped(), unix.MADV_DONTNEED))
		require.NoError(t, unix.Madvise(table.Mapped(), unix.MADV_RANDOM))
		file, err := os.Open(table.Path)
		require.NoError(t, err)
		defer file.Close()
		// Drop only the blocks: the index stays in memory.
		blocks := int64(partsOf(table.Mapped()).index) &^ (blockSize - 1)
		require.NoError(t, unix.Fadvise(int(file.Fd()), 0, blocks, unix.FADV_DONTNEED))
		if ahead {
			db.ReadAhead(keys)
		}
		before := majorFaults(t)
		found := 0
		require.NoError(t, db.MultiGet(keys, func(_ int, _ []byte, err error) error {
			found++
			return err
		}))
		require.Equal(t, lookups, found)
		return majorFaults(t) - before
	}
	with, without := waits(true), waits(false)
	t.Logf("%d lookups: %d faults after ReadAhead, %d without", lookups, with, without)
	require.Less(t, with, lookups/4)
	share, mapped := db.Resident()
	require.EqualValues(t, len(table.Mapped()), mapped)
	if without < lookups/2 {
		t.Skip("the lookups do not wait without ReadAhead either: the test's directory is in memory or on a fast disk")
	}
	require.Less(t, share, 1.0)
	require.NoError(t, db.Close())
	db.ReadAhead(keys)
	_, mapped = db.Resident()
	require.Zero(t, mapped)
}

// majorFaults returns the number of pages for which this process has waited for the
// disk.
func majorFaults(t *testing.T) int {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return int(usage.Majflt)
}
