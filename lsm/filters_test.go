package lsm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestFilterScoresAreKept: filter scores survive a restart and a checkpoint; if their
// file is missing or damaged, the ranking starts from zero.
func TestFilterScoresAreKept(t *testing.T) {
	o := memOptions()
	db, err := Open("db", o)
	require.NoError(t, err)
	unknown := db.filters.Scores()
	for i := range 100 {
		set(t, db, fmt.Sprint("key", i), "value")
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context())) // the manager gets the table's filter after Flush
	for i := range 100 {
		_, err := db.Get(nil, fmt.Append(nil, "key", i))
		require.NoError(t, err)
	}
	learnt := db.filters.Scores()
	require.NotEqual(t, unknown, learnt)
	require.NoError(t, db.Checkpoint("checkpoint"))
	checkpoint := open(t, "checkpoint", o)
	assert.Equal(t, learnt, checkpoint.filters.Scores(), "it opens warm")
	require.NoError(t, checkpoint.Check())
	require.NoError(t, db.Close())
	saved, err := vfs.ReadFile(o.FS, "db/"+filtersName)
	require.NoError(t, err)
	require.Equal(t, learnt, saved)

	for _, o := range []*Options{o, {FS: o.FS, ReadOnly: true}} {
		db, err := Open("db", o)
		require.NoError(t, err)
		assert.Equal(t, learnt, db.filters.Scores())
		require.NoError(t, db.Check())
		require.NoError(t, db.Close())
	}

	require.NoError(t, o.FS.Remove("db/"+filtersName))
	writeFile(t, o.FS, "db/"+filtersName, learnt[:len(learnt)-1])
	db = open(t, "db", o)
	assert.NotEqual(t, learnt, db.filters.Scores())
	requireValue(t, db, "key1", "value")
	require.ErrorIs(t, db.Check(), ErrCorrupt)
}

// TestMissedLookupsAreReported: a table search without result is reported to its
// filter.
func TestMissedLookupsAreReported(t *testing.T) {
	o := memOptions()
	o.FilterBytes = -1 // no page is ever in memory
	db := open(t, "db", o)
	set(t, db, "a", "1")
	set(t, db, "c", "3")
	require.NoError(t, db.Flush())
	for range 5 {
		_, err := db.Get(nil, []byte("b"))
		require.ErrorIs(t, err, ErrNotFound)
		requireValue(t, db, "c", "3")
	}
	filter := db.Stats().Tables[0].Filter
	assert.EqualValues(t, 10, filter.Probes)
	assert.EqualValues(t, 10, filter.Absent)
	assert.EqualValues(t, 5, filter.Missed)
}
