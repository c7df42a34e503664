//go:build !race

// The race detector allocates shadow memory for every byte of the heap.

package lsm

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// anonymousBytes returns the anonymous memory of this process.
func anonymousBytes(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	require.NoError(t, err)
	match := regexp.MustCompile(`(?m)^Anonymous: +(\d+) kB$`).FindSubmatch(rollup)
	require.NotNil(t, match)
	kilobytes, err := strconv.ParseInt(string(match[1]), 10, 64)
	require.NoError(t, err)
	return kilobytes << 10
}

// TestMemoryOfLargeBatchIsReleased: the memtable of a large batch is flushed without
// another write, and its memory is returned to the system.
func TestMemoryOfLargeBatchIsReleased(t *testing.T) {
	const batchBytes = 64 << 20
	budget := NewBudget(8 << 20)
	db := open(t, t.TempDir(), &Options{Budget: budget})
	before := anonymousBytes(t)
	func() {
		var batch Batch
		value := make([]byte, 64<<10)
		for i := range batchBytes / len(value) {
			require.NoError(t, batch.Set(fmt.Append(nil, i), value))
		}
		require.NoError(t, db.Apply(&batch))
	}()
	require.NoError(t, db.WaitIdle(t.Context()))
	require.EqualValues(t, 1, db.Stats().Writes.Flushes)
	require.LessOrEqual(t, budget.Stats().Memtables, 2*db.mostMemtableBytes())
	require.Less(t, anonymousBytes(t)-before, int64(batchBytes/2))
}
