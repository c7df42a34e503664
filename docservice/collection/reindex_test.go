package collection

import (
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// awaitIndex waits until the collection serves an index, and only that is left.
func (f *fixture) awaitIndex(c *Collection, n indexNumber) {
	f.t.Helper()
	waitFor(f.t, c, "another index is served", func(s Status) bool {
		numbers, err := listIndexes(f.fs, f.dir)
		return err == nil && slices.Equal(numbers, []indexNumber{n}) && s.Ready && s.Replacement == nil
	})
	_, err := f.fs.Stat(filepath.Join(f.dir, reindexName))
	require.ErrorIs(f.t, err, fs.ErrNotExist)
}

// An index is rebuilt on request, of an open collection and of a closed one; documents are
// found all the time.
func TestReindex(t *testing.T) {
	f := newMemFixture(t)
	last := f.putMany("doc", 1000)
	c := f.ready()
	require.NoError(t, RequestReindex(f.fs, f.dir))
	waitFor(t, c, "another index is served", func(s Status) bool {
		require.True(t, s.Ready)
		requireDocument(t, c, "doc-7", documentOf("doc-7"))
		return c.serving.Load().number == firstIndex.next()
	})
	f.awaitIndex(c, firstIndex.next())
	require.NoError(t, c.WaitFor(soon(t), last))
	require.NoError(t, c.Close())

	require.NoError(t, RequestReindex(f.fs, f.dir))
	c = f.ready()
	requireDocument(t, c, "doc-7", documentOf("doc-7"))
	f.awaitIndex(c, firstIndex.next().next())
	requireDocument(t, c, "doc-999", documentOf("doc-999"))
	require.EqualValues(t, 1000, c.Status().Applied, "the new index has read the queue")

	// A directory without an index is refused.
	require.ErrorContains(t, RequestReindex(f.fs, f.queueDir), "holds no index")
	require.ErrorContains(t, RequestReindex(vfs.OS, filepath.Join(t.TempDir(), "none")), "holds no index")
}

// After a crash at any write during a rebuild on request, the collection serves all
// documents, and the rebuild is completed.
func TestReindexAfterCrash(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("doc", 50)
	c := f.ready()
	require.NoError(t, c.Close())
	require.NoError(t, f.writer.Close())
	for seed := range uint64(40) {
		g := newFixture(t, f.fs.(*vfs.Mem).CrashClone(vfs.KeepAll), string(filepath.Separator))
		require.NoError(t, RequestReindex(g.fs, g.dir))
		c := g.open()
		for range seed { // stop at different moments
			requireDocument(t, c, "doc-7", documentOf("doc-7"))
		}
		crashed := newFixture(t, g.fs.(*vfs.Mem).CrashClone(vfs.KeepSynced), string(filepath.Separator))
		require.NoError(t, c.Close())
		c = crashed.open()
		waitFor(t, c, "the rebuild is completed", func(s Status) bool {
			return s.Ready && s.Replacement == nil && c.serving.Load().number != firstIndex
		})
		requireDocument(t, c, "doc-7", documentOf("doc-7"))
		require.NoError(t, c.Close())
	}
}
