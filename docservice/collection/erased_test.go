package collection

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/queue"
	"docstore/queue/maintain"
)

// erased makes a copy of a queue with a rewrite that has left out "gone", which was deleted
// and erased. The copy lacks the segment with the delete, and memcached has the document.
func erased(t *testing.T) (f *fixture, restOfQueue func()) {
	source, cache, _ := memoryCachedFixture(t)
	source.put("gone", documentOf("gone"))
	source.put("kept", documentOf("kept"))
	source.seal()
	c := source.ready()
	waitStats(t, cache, "both are loaded", func(s CacheStats) bool { return s.Loaded == 2 })
	requireDocument(t, c, "gone", documentOf("gone"))
	require.EqualValues(t, 1, cache.Stats().Hits)
	require.NoError(t, c.Close()) // before it has read the delete

	_, err := source.queueWriter().Delete([]byte("gone"))
	require.NoError(t, err)
	source.put("later", documentOf("later"))
	source.seal()
	path, content := source.segment(2)
	source.clock.advance(time.Hour)
	_, err = maintain.Compact(context.Background(), source.queueDir, &maintain.CompactOptions{
		FS: source.fs, EraseDead: true, DeleteOriginals: true, Now: source.clock.Now,
	})
	require.NoError(t, err)
	require.NoError(t, source.fs.Remove(path))
	return source, func() { replace(t, source.fs, path, content) }
}

// A daemon that has not read a delete yet must not serve the erased document from
// memcached.
func TestErasedDocumentIsNotServedFromTheCache(t *testing.T) {
	f, rest := erased(t)
	require.True(t, f.exists(filepath.Join(f.queueDir, "0000000001-0000000001.0001.seg")))
	require.False(t, f.exists(filepath.Join(f.queueDir, sealedName(1))))
	f.options.VerifyInterval = time.Millisecond
	c := f.open()
	requireNone(t, c, "gone", docservice.ErrUnavailable)
	requireDocument(t, c, "kept", documentOf("kept"))
	_, answers, err := c.GetMany(nil, [][]byte{[]byte("gone"), []byte("kept")}, 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, docservice.ErrUnavailable)
	require.Equal(t, documentOf("kept"), string(answers[1].Document))

	rest()
	require.NoError(t, c.WaitReady(soon(t)))
	waitFor(t, c, "all is settled", func(Status) bool { return c.serving.Load().reader.unsettled.Load() == nil })
	requireNone(t, c, "gone", docservice.ErrNotFound)
	hits := f.options.Cache.Stats().Hits
	requireDocument(t, c, "kept", documentOf("kept"))
	require.Equal(t, hits+1, f.options.Cache.Stats().Hits, "the cache is asked again")
}

// A document whose store into memcached was pending when it was deleted does not stay
// there.
func TestDeletedDocumentDoesNotStayInTheCache(t *testing.T) {
	f, cache, _ := memoryCachedFixture(t)
	f.put("a", documentOf("a"))
	c := f.ready()
	waitStats(t, cache, "it is loaded", func(s CacheStats) bool { return s.Loaded == 1 })
	at, s := placeOf(t, c, "a"), c.serving.Load()
	entry, ok := s.reader.cachedBefore([]byte("a"))
	require.True(t, ok)
	deleted, err := f.queueWriter().Delete([]byte("a"))
	require.NoError(t, err)
	require.NoError(t, f.writer.Flush())
	require.NoError(t, c.WaitFor(soon(t), deleted))
	cache.enqueue(cacheLoad{reader: s.reader, id: "a", entry: entry}) // as by a fetch that began before
	waitStats(t, cache, "it is loaded", func(s CacheStats) bool { return s.Loaded == 2 })
	require.Eventually(t, func() bool { _, there := at.get(); return !there }, patience, time.Millisecond)
}

func TestUnsettledRuns(t *testing.T) {
	var none *unsettled
	require.False(t, none.holds(queue.Address{Segment: 1}))
	some := unsettled(nil).with(segmentRun{7, 7}, segmentRun{3, 3}, segmentRun{2, 2})
	require.Equal(t, unsettled{{2, 3}, {7, 7}}, some)
	for segment, want := range map[queue.SegmentID]bool{1: false, 2: true, 3: true, 4: false, 7: true, 8: false} {
		require.Equal(t, want, some.holds(queue.Address{Segment: segment}), "%d", segment)
	}
	require.Equal(t, unsettled{{1, 9}}, some.with(segmentRun{1, 9}))
	require.Equal(t, unsettled{{2, 7}}, some.with(segmentRun{4, 6}))
}
