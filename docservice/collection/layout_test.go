package collection

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
)

// oldIndex is an index of the format without places.
var oldIndex = indexNumber{number: 1, old: true}

// requireFormat requires the values of the served index to have a length.
func requireFormat(t *testing.T, c *Collection, bytes int) {
	t.Helper()
	value, err := c.serving.Load().index.Get(nil, []byte("doc-7"))
	require.NoError(t, err)
	require.Len(t, value, bytes)
}

// TestOldIndex: an index of the old format keeps it, so that an earlier release can continue
// with it, until another one is requested.
func TestOldIndex(t *testing.T) {
	f := newFixture(t, vfs.OS, t.TempDir())
	require.NoError(t, vfs.OS.MkdirAll(oldIndex.path(f.dir)))
	f.putMany("doc", 100)
	f.seal()
	c := f.ready()
	requireFormat(t, c, oldIndexEntryBytes)
	f.awaitIndex(c, oldIndex)
	target := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, CheckpointIndex(f.dir, target, nil))
	numbers, err := listIndexes(vfs.OS, target)
	require.NoError(t, err)
	require.Equal(t, []indexNumber{oldIndex}, numbers, "a checkpoint has the same format")
	require.NoError(t, c.Close())

	last := f.putMany("more", 100)
	c = f.ready()
	require.NoError(t, c.WaitFor(soon(t), last))
	requireFormat(t, c, oldIndexEntryBytes)
	for _, id := range []string{"doc-7", "more-7"} {
		requireDocument(t, c, id, documentOf(id))
	}
	compared, err := CompareIndex(t.Context(), f.dir, f.queueDir, f.options.Now(), CompareMemory, nil)
	require.NoError(t, err)
	require.Zero(t, compared.Differences(), compared.Examples)
	require.NoError(t, RequestReindex(f.dir))
	f.awaitIndex(c, firstIndex)
	requireFormat(t, c, indexEntryBytes)
	for _, id := range []string{"doc-7", "more-7"} {
		requireDocument(t, c, id, documentOf(id))
	}
	target = filepath.Join(t.TempDir(), "copy")
	require.NoError(t, CheckpointIndex(f.dir, target, nil))
	numbers, err = listIndexes(vfs.OS, target)
	require.NoError(t, err)
	require.Equal(t, []indexNumber{firstIndex}, numbers)
}

// TestIndexesOfBothFormats: after an earlier release has built an index of its own, that one
// is served until the index with places has caught up.
func TestIndexesOfBothFormats(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("doc", 100)
	c := f.ready()
	requireFormat(t, c, indexEntryBytes)
	require.NoError(t, c.Close())
	last := f.putMany("more", 100)
	require.NoError(t, f.fs.MkdirAll(oldIndex.path(f.dir)))
	// As the earlier release, which does not see the other index.
	away := firstIndex.path(f.dir) + "-away"
	require.NoError(t, f.fs.Rename(firstIndex.path(f.dir), away))
	c = f.ready()
	require.NoError(t, c.WaitFor(soon(t), last))
	requireFormat(t, c, oldIndexEntryBytes)
	require.NoError(t, c.Close())
	require.NoError(t, f.fs.Rename(away, firstIndex.path(f.dir)))

	c = f.open()
	require.Equal(t, oldIndex, c.serving.Load().number)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "more-7", documentOf("more-7"))
	f.awaitIndex(c, firstIndex)
	require.NoError(t, c.WaitFor(soon(t), last))
	requireDocument(t, c, "more-7", documentOf("more-7"))
	requireNone(t, c, "none", docservice.ErrNotFound)
}

// TestCompactedPlaces: documents whose places were changed by a compaction are found, also
// by an index that was built after it, and after the next compaction.
func TestCompactedPlaces(t *testing.T) {
	f := newFixture(t, vfs.OS, t.TempDir())
	f.putMany("doc", 300)
	f.seal()
	c := f.ready()
	for round := range 9 { // more than the generations that a place tells apart
		f.putMany("doc", 100)
		f.seal()
		_, err := queue.Compact(t.Context(), f.queueDir, &queue.CompactOptions{MaxDead: 0.01, DeleteOriginals: true})
		require.NoError(t, err)
		require.NoError(t, c.WaitFor(soon(t), f.put("last", documentOf("last"))))
		if round%3 == 1 {
			before := c.serving.Load().number
			require.NoError(t, RequestReindex(f.dir))
			f.awaitIndex(c, before.next())
		}
		ids := [][]byte{[]byte("doc-7"), []byte("doc-150"), []byte("doc-299"), []byte("last")}
		_, answers, err := c.GetMany(nil, ids, docservice.MaxReplyBytes)
		require.NoError(t, err)
		for i, id := range ids {
			requireDocument(t, c, string(id), documentOf(string(id)))
			require.NoError(t, answers[i].Err)
			require.Equal(t, documentOf(string(id)), string(answers[i].Document))
		}
		compared, err := CompareIndex(t.Context(), f.dir, f.queueDir, f.options.Now(), CompareMemory, nil)
		require.NoError(t, err)
		require.Zero(t, compared.Differences(), compared.Examples)
		require.Empty(t, c.Status().Faults)
	}
}
