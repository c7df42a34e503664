package collection

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/maintain"
)

// An index entry whose document compaction has left out is not found once the index
// includes the entry that superseded it, and unavailable before. It is not a fault.
func TestCompactedVersion(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "one")
	f.put("2", "two")
	f.seal()
	c := f.ready()
	old, err := c.serving.Load().index.Get(nil, []byte("1"))
	require.NoError(t, err)
	stale, err := decodeIndexEntry(old)
	require.NoError(t, err)
	require.NoError(t, c.WaitFor(soon(t), f.put("1", "one, changed")))
	f.seal()
	_, err = maintain.Compact(context.Background(), f.queueDir, &maintain.CompactOptions{FS: f.fs, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	require.NoError(t, c.Close())

	c = f.ready()
	requireDocument(t, c, "1", "one, changed")
	requireDocument(t, c, "2", "two")
	document, _, err := c.serving.Load().reader.fetch(nil, []byte("1"), stale, 0)
	require.NoError(t, err, "the index has a newer version")
	require.Equal(t, "one, changed", string(document))

	var batch lsm.Batch
	require.NoError(t, batch.Set([]byte("1"), old))
	require.NoError(t, c.serving.Load().index.Apply(&batch))
	c.serving.Load().health.mu.Lock()
	end := c.serving.Load().health.mu.tail.position
	c.serving.Load().health.mu.tail.position.Next = queue.Address{Segment: 2}
	c.serving.Load().health.mu.Unlock()
	requireNone(t, c, "1", docservice.ErrUnavailable)
	require.Empty(t, c.Status().Faults)
	c.serving.Load().health.mu.Lock()
	c.serving.Load().health.mu.tail.position = end
	c.serving.Load().health.stateChanged() // it may have been called in between
	c.serving.Load().health.mu.Unlock()
	requireNone(t, c, "1", docservice.ErrNotFound) // and the entry is removed
}

// rewritten makes a copy of a queue with two rewritten segments and a third one, with or
// without the rewritten originals.
func rewritten(t *testing.T, originals bool) (f *fixture, path string, content []byte) {
	f = newMemFixture(t)
	for range 2 {
		f.putMany("first", 100)
		f.putMany("second", 50)
		f.seal()
	}
	f.putMany("second", 50)
	f.seal()
	_, err := maintain.Compact(context.Background(), f.queueDir, &maintain.CompactOptions{
		FS: f.fs, MaxDead: 0.01, DeleteOriginals: !originals, Logger: f.options.Logger,
	})
	require.NoError(t, err)
	path = filepath.Join(f.queueDir, "0000000001-0000000002.0001.seg")
	content, err = vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	f.asCopy()
	return f, path, content
}

// A damaged rewrite is quarantined, and its sound documents are served, until it is copied
// again.
func TestQuarantineOfARewrite(t *testing.T) {
	f, path, good := rewritten(t, false)
	replace(t, f.fs, path, flipped(t, good, documentOf("first-50")))
	c := f.ready()
	waitFor(t, c, "it is quarantined", quarantined(1))
	for range 2 { // the second time after a restart
		require.True(t, f.exists(path+queue.QuarantineSuffix))
		requireNone(t, c, "first-50", docservice.ErrUnavailable)
		requireDocument(t, c, "first-51", documentOf("first-51"))
		requireDocument(t, c, "second-49", documentOf("second-49"))
		status := c.Status()
		require.NotEmpty(t, status.Faults)
		require.Equal(t, path+queue.QuarantineSuffix, status.Faults[0].Path)
		require.NoError(t, c.Close())
		c = f.open()
	}
	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	waitFor(t, c, "the copy is sound", noFaults)
	requireDocument(t, c, "first-50", documentOf("first-50"))
	f.waitRemoved(path + queue.QuarantineSuffix)
	require.Eventually(t, func() bool { return len(f.keptResults()) == 2 }, patience, time.Millisecond)
	require.Contains(t, f.keptResults(), segmentKey{1, 1})
}

// The originals serve while a damaged rewrite is away, if they still exist.
func TestQuarantineOfRewriteWithOriginals(t *testing.T) {
	f, path, good := rewritten(t, true)
	replace(t, f.fs, path, flipped(t, good, documentOf("first-50")))
	c := f.ready()
	waitFor(t, c, "it is quarantined", quarantined(1))
	requireDocument(t, c, "first-50", documentOf("first-50"))
	require.True(t, c.Status().Ready)
	replace(t, f.fs, path, good)
	f.waitRemoved(path + queue.QuarantineSuffix)
	waitFor(t, c, "the copy is sound", noFaults)
}

// A quarantined segment is no longer awaited when a rewrite that supersedes it arrives: the
// source was repaired.
func TestRewriteSupersedesQuarantinedSegment(t *testing.T) {
	f, path, good := sealedFixture(t)
	damaged := flipped(t, good, documentOf("second-50"))
	replace(t, f.fs, path, damaged)
	require.NoError(t, f.writer.Close())
	repaired, err := maintain.Repair(context.Background(), f.queueDir, &maintain.RepairOptions{FS: f.fs})
	require.NoError(t, err)
	rewrite, err := vfs.ReadFile(f.fs, repaired[0].Rewrite)
	require.NoError(t, err)
	require.NoError(t, f.fs.Remove(repaired[0].Rewrite))
	replace(t, f.fs, path, damaged)
	f.asCopy()
	f.index()
	c := f.open()
	waitFor(t, c, "it is quarantined", quarantined(1))
	replace(t, f.fs, repaired[0].Rewrite, rewrite)
	f.waitRemoved(path + queue.QuarantineSuffix)
	waitFor(t, c, "nothing is wrong", noFaults)
	requireNone(t, c, "second-50", docservice.ErrUnavailable)
	requireNone(t, c, "second-50", docservice.ErrUnavailable)
	requireDocument(t, c, "second-51", documentOf("second-51"))
	require.Empty(t, c.Status().Faults, "a lost document is no fault of this copy")
	require.Equal(t, uint64(1), c.Status().Quarantined)
}

func TestBytesBefore(t *testing.T) {
	file := func(first, last queue.SegmentID, generation uint32, bytes int64) segmentFile {
		return segmentFile{segmentKey: segmentKey{first, generation}, last: last, version: fileVersion{bytes: bytes}}
	}
	files := []segmentFile{
		file(1, 1, 0, 10), file(2, 5, 2, 40), file(2, 3, 1, 1000), file(2, 2, 0, 1000), file(4, 4, 0, 1000), file(6, 6, 0, 100), file(7, 9, 1, 30),
	}
	for _, c := range []struct {
		at     queue.Address
		before int64
	}{
		{queue.Address{}, 0},
		{queue.Address{Segment: 1, Block: 5}, 5},
		{queue.Address{Segment: 2, Block: 999}, 10},
		{queue.Address{Segment: 4}, 30},
		{queue.Address{Segment: 6, Block: 999}, 150},
		{queue.Address{Segment: 10}, 180},
	} {
		before, all := bytesBefore(files, c.at)
		require.EqualValues(t, 180, all)
		require.Equal(t, c.before, before, "%v", c.at)
	}
}

// TestRewriteBeforeWhatSupersededIt: the tail reads the rest of a segment from a rewrite, which lacks
// a version of a document because of a later one, and the segment of that has not arrived. The
// index has neither, so the id is unavailable and not missing, also after a restart.
func TestRewriteBeforeWhatSupersededIt(t *testing.T) {
	for _, restart := range []bool{false, true} {
		source, f := newMemFixture(t), newMemFixture(t)
		known := map[string]vfs.Info{}
		source.put("a", "one")
		_, err := source.queueWriter().Delete([]byte("a"))
		require.NoError(t, err)
		source.put("b", "bee")
		f.copyQueue(source, known)
		c := f.ready()
		requireNone(t, c, "a", docservice.ErrNotFound)

		source.put("a", "two")
		source.put("c", "see")
		source.seal()
		source.put("a", "three")
		source.seal()
		_, err = maintain.Compact(t.Context(), source.queueDir, &maintain.CompactOptions{FS: source.fs, MaxDead: 0.01, DeleteOriginals: true})
		require.NoError(t, err)
		const rewrite, last = "0000000001-0000000001.0001.seg", "0000000002.seg"
		arrive := func(name string) {
			content, err := vfs.ReadFile(source.fs, filepath.Join(source.queueDir, name))
			require.NoError(t, err)
			require.NoError(t, vfs.WriteFileAtomic(f.fs, filepath.Join(f.queueDir, name), content))
		}
		arrive(rewrite)
		waitFor(t, c, "the rest of the segment is read", func(Status) bool {
			_, err := c.Get(nil, []byte("c"))
			return err == nil
		})
		if restart {
			require.NoError(t, c.Close())
			c = f.open()
			waitFor(t, c, "the queue is read to its end", func(s Status) bool { return s.Position.Next.Segment > 0 && c.serving.Load().health.tailState().current })
		}
		requireNone(t, c, "a", docservice.ErrUnavailable)
		requireDocument(t, c, "b", "bee")
		require.False(t, c.Ready())
		arrive(last)
		require.NoError(t, c.WaitReady(soon(t)))
		requireDocument(t, c, "a", "three")
	}
}
