package lsm

import (
	"fmt"
	"math/bits"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestFlushesMergeWhatTheRuleWouldMergeAtOnce counts the tables created: those of up to
// maxFusedUnits are never created only to be merged at once, and after each flush the
// tables are those of the rule, one for each bit set in the number of flushes.
func TestFlushesMergeWhatTheRuleWouldMergeAtOnce(t *testing.T) {
	created := 0
	o := memOptions()
	o.FS = vfs.NewFault(o.FS, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			created++
		}
		return nil
	})
	db := open(t, "db", o)
	const flushes = 16
	want := 0
	for n := 1; n <= flushes; n++ {
		for i := range 62 { // a full memtable
			set(t, db, fmt.Sprint(n*100+i), strings.Repeat("v", 1000))
		}
		require.NoError(t, db.Flush())
		require.NoError(t, db.WaitIdle(t.Context()))
		want++
		if n&-n > maxFusedUnits {
			want++ // the flush, then the merge
		}
		db.schedule.mu.Lock()
		require.Equal(t, want, created, "tables written by %d flushes", n)
		db.schedule.mu.Unlock()
		var units uint64
		for _, table := range db.Stats().Tables {
			units += table.Units
		}
		require.EqualValues(t, n, units)
		require.Len(t, db.Stats().Tables, bits.OnesCount(uint(n)))
	}
	w := db.Stats().Writes
	require.EqualValues(t, flushes, w.Flushes)
	require.EqualValues(t, flushes/2, w.Merges)
	rule := 0 // memtables written by the rule, which merges the flush in the same pass
	for n := 1; n <= flushes; n++ {
		rule += n & -n
	}
	require.InDelta(t, float64(rule)/flushes+1./(2*maxFusedUnits), w.Amplification(), 0.02)
	require.NoError(t, db.Check())
}

// TestDamagedTableDoesNotStopFlushes: a flush that would merge a damaged table writes
// its memtable alone.
func TestDamagedTableDoesNotStopFlushes(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	set(t, db, "a", "old")
	require.NoError(t, db.Flush())
	path := db.schedule.current.Load().tables[0].Path
	b, err := vfs.ReadFile(o.FS, path)
	require.NoError(t, err)
	b[tableHeaderSize+blockHeaderSize+8] ^= 1
	require.NoError(t, o.FS.Remove(path))
	writeFile(t, o.FS, path, b)

	for i := range 3 {
		set(t, db, "a", fmt.Sprint(i))
		require.NoError(t, db.Flush())
		requireValue(t, db, "a", fmt.Sprint(i))
	}
	require.ErrorIs(t, db.WaitIdle(t.Context()), ErrCorrupt)
	require.ErrorIs(t, db.Stats().Problem, ErrCorrupt)
	require.Len(t, db.Stats().Tables, 4)
}
