package collection

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
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

// TestIndexesOfBothFormats: the index that an earlier release has built meanwhile is removed,
// and this release continues with its own.
func TestIndexesOfBothFormats(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("doc", 100)
	c := f.ready()
	requireFormat(t, c, indexEntryBytes)
	require.NoError(t, c.Close())
	last := f.putMany("more", 100)
	f.leaveIndex(oldIndex)

	c = f.ready()
	f.awaitIndex(c, firstIndex)
	require.NoError(t, c.WaitFor(soon(t), last))
	requireDocument(t, c, "more-7", documentOf("more-7"))
	requireNone(t, c, "none", docservice.ErrNotFound)
}

// leaveIndex builds an index of the present queue as another run of the program would leave it.
func (f *fixture) leaveIndex(n indexNumber) {
	f.t.Helper()
	g := *f
	g.dir = f.dir + "-other"
	require.NoError(f.t, g.fs.MkdirAll(firstIndex.path(g.dir)))
	require.NoError(f.t, g.ready().Close())
	require.NoError(f.t, f.fs.Rename(firstIndex.path(g.dir), n.path(f.dir)))
	require.NoError(f.t, f.fs.RemoveAll(g.dir))
}

// TestIndexLeftByAnUpgrade: an upgrade during a rebuild leaves the partly built index of the
// earlier release. It is not served later, when its name is the lowest.
func TestIndexLeftByAnUpgrade(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("doc", 100)
	f.leaveIndex(oldIndex)
	f.leaveIndex(indexNumber{number: 2, old: true})
	last := f.put("doc-7", "changed")
	c := f.ready()
	f.awaitIndex(c, oldIndex)
	for _, next := range []indexNumber{firstIndex, firstIndex.next()} {
		require.NoError(t, requestReindex(f.fs, f.dir))
		f.awaitIndex(c, next)
	}
	require.NoError(t, c.Close())
	c = f.open()
	require.Equal(t, firstIndex.next(), c.serving.Load().number)
	require.NoError(t, c.WaitFor(soon(t), last))
	requireDocument(t, c, "doc-7", "changed")
}

// TestServedIndexIsRecorded: after a takeover whose last step failed, to remove the previous
// index, the new one is served, and the previous one is removed by the next start.
func TestServedIndexIsRecorded(t *testing.T) {
	var broken atomic.Bool
	files := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if broken.Load() && op.Kind == vfs.OpRename && strings.HasSuffix(op.Name, firstIndex.name()+removedExtension) {
			return syscall.EIO
		}
		return nil
	})
	f := newFixture(t, files, string(filepath.Separator))
	f.putMany("doc", 100)
	c := f.ready()
	broken.Store(true)
	require.NoError(t, requestReindex(f.fs, f.dir))
	waitFor(t, c, "another index is served", func(s Status) bool {
		return c.serving.Load().number == firstIndex.next() && s.Replacement == nil
	})
	require.NoError(t, c.Close())
	numbers, err := listIndexes(f.fs, f.dir)
	require.NoError(t, err)
	require.Equal(t, []indexNumber{firstIndex.next(), firstIndex}, numbers)
	broken.Store(false)
	c = f.ready()
	f.awaitIndex(c, firstIndex.next())
	require.Zero(t, c.Status().Applied)

	// The record is missing in the directory of an earlier release, and may name an index that
	// is missing.
	serving := filepath.Join(f.dir, servingName)
	for _, content := range []string{"", "index-0009.v1\n", "index-0009.v1"} {
		require.NoError(t, c.Close())
		if replace(t, f.fs, serving, []byte(content)); content == "" {
			require.NoError(t, f.fs.Remove(serving))
		}
		c = f.ready()
		require.Equal(t, firstIndex.next(), c.serving.Load().number)
		requireDocument(t, c, "doc-7", documentOf("doc-7"))
		named, err := readServing(f.fs, f.dir)
		require.NoError(t, err)
		require.Equal(t, firstIndex.next(), named)
	}
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
