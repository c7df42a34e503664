package collection

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/maintain"
)

// compact rewrites all segments with a dead document, and removes the replaced files.
func (f *fixture) compact() {
	f.t.Helper()
	f.clock.advance(time.Minute)
	_, err := maintain.Compact(context.Background(), f.queueDir, &maintain.CompactOptions{
		FS: f.fs, MaxDead: 0.01, DeleteOriginals: true, Now: f.clock.Now,
	})
	require.NoError(f.t, err)
}

// awayFixture returns a queue whose index has "gone" and "kept" of segment 1 and "more" of
// segment 2, and did not read that "gone" was deleted: compaction has dropped the document and
// then the delete.
func awayFixture(t *testing.T, f *fixture) *fixture {
	f.options.Cache, _ = newMemoryCache(t)
	f.put("gone", documentOf("gone"))
	f.put("kept", documentOf("kept"))
	f.seal()
	f.put("more", documentOf("more"))
	c := f.ready()
	waitStats(t, f.options.Cache, "all are loaded", func(s CacheStats) bool { return s.Loaded == 3 })
	require.NoError(t, c.Close())
	f.dropGone()
	return f
}

// dropGone deletes "gone", and compacts the queue until it has neither document nor delete.
func (f *fixture) dropGone() {
	f.t.Helper()
	_, err := f.queueWriter().Delete([]byte("gone"))
	require.NoError(f.t, err)
	f.put("later", documentOf("later"))
	f.seal()
	f.put("last", documentOf("last"))
	f.seal()
	f.compact()
	f.compact()
	require.NoError(f.t, f.reader().Scan(f.t.Context(), queue.Position{}, func(e queue.Entry) error {
		require.NotEqual(f.t, "gone", string(e.ID))
		return nil
	}))
}

func (f *fixture) reader() *queue.Reader {
	f.t.Helper()
	r, err := queue.OpenReader(f.queueDir, &queue.ReaderOptions{FS: f.fs})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { r.Close() })
	return r
}

// requireGone requires that no answer shows "gone".
func requireGone(t *testing.T, c *Collection) {
	t.Helper()
	requireNone(t, c, "gone", docservice.ErrNotFound)
	_, answers, err := c.GetMany(nil, [][]byte{[]byte("gone"), []byte("kept")}, 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, docservice.ErrNotFound)
	require.Equal(t, documentOf("kept"), string(answers[1].Document))
	_, err = c.Locate([]byte("gone"))
	require.ErrorIs(t, err, docservice.ErrNotFound)
	for _, idsOnly := range []bool{false, true} {
		var ids []string
		require.NoError(t, c.Scan(t.Context(), docservice.ScanOptions{IDsOnly: idsOnly}, func(id []byte, answer Answer) error {
			ids = append(ids, string(id))
			return answer.Err
		}))
		require.Equal(t, []string{"kept", "last", "later", "more"}, ids)
	}
	count, err := c.Count(t.Context(), []byte("gone"))
	require.NoError(t, err)
	require.Zero(t, count)
	census, err := c.Census(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, census[1].Documents)
}

// settled waits until the collection has removed the stale entries.
func settled(t *testing.T, c *Collection) {
	t.Helper()
	waitFor(t, c, "all is settled", func(Status) bool {
		s := c.serving.Load()
		return s.reader.unsettled.Load() == nil && s.indexState().unsettled == nil
	})
}

// A document that was deleted while the index was away is not served, listed or counted,
// although compaction has dropped the delete and memcached still has the document. Its entry
// is removed, before a restart or after it.
func TestDeleteDroppedWhileTheIndexWasAway(t *testing.T) {
	f := awayFixture(t, newMemFixture(t))
	c := f.ready()
	settled(t, c)
	require.Equal(t, []string{"kept", "last", "later", "more"}, indexed(t, c))
	requireGone(t, c)
	hits := f.options.Cache.Stats().Hits
	requireDocument(t, c, "kept", documentOf("kept"))
	require.Equal(t, hits+1, f.options.Cache.Stats().Hits, "the cache is asked again")
}

// The stale entries are not forgotten if the server crashes before it has removed them.
func TestCrashBeforeStaleEntriesAreRemoved(t *testing.T) {
	random := testseed.Rand(t)
	f := awayFixture(t, newMemFixture(t))
	for range 50 {
		g := newFixture(t, f.fs.(*vfs.Mem).CrashClone(vfs.KeepAll), string(filepath.Separator))
		g.options.Cache = f.options.Cache
		c := g.open()
		for range random.IntN(30) { // stop at different moments
			_, err := c.Get(nil, []byte("gone"))
			require.Error(t, err)
		}
		crashed := newFixture(t, g.fs.(*vfs.Mem).CrashClone(vfs.KeepRandom(random.Uint64())), string(filepath.Separator))
		crashed.options.Cache = f.options.Cache
		require.NoError(t, c.Close())
		for range 2 {
			c = crashed.ready()
			requireGone(t, c)
			require.NoError(t, c.Close())
		}
	}
}

// An entry is not removed while it is unknown whether the document exists, also after a
// restart.
func TestStaleEntriesOfAMissingFile(t *testing.T) {
	f := awayFixture(t, newMemFixture(t))
	path := filepath.Join(f.queueDir, "0000000001-0000000001.0001.seg")
	content, err := vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	replace(t, f.fs, path, content[:len(content)/2])
	c := f.ready()
	require.ErrorIs(t, c.serving.Load().settler.settle(t.Context()), queue.ErrUnavailable)
	requireNone(t, c, "gone", docservice.ErrUnavailable)
	requireNone(t, c, "kept", docservice.ErrUnavailable)
	_, err = c.Locate([]byte("gone"))
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	require.NoError(t, c.Scan(t.Context(), docservice.ScanOptions{IDsOnly: true, Limit: 2}, func(_ []byte, answer Answer) error {
		require.ErrorIs(t, answer.Err, docservice.ErrUnavailable)
		return nil
	}))
	require.Contains(t, indexed(t, c), "gone")
	require.NotNil(t, c.serving.Load().indexState().unsettled)
	require.NoError(t, c.Close())
	replace(t, f.fs, path, content)
	c = f.ready()
	requireGone(t, c)
	settled(t, c)
	requireGone(t, c)
}

// A mark that was set again while its segments were examined stays: they may have been rewritten
// meanwhile.
func TestSegmentsMarkedAgainStayUnsettled(t *testing.T) {
	f := awayFixture(t, newMemFixture(t))
	c := f.ready()
	settled(t, c)
	s := c.serving.Load()
	s.stop() // from here on only the test marks and settles
	s.running.Wait()
	rewrites, err := s.queue.Rewrites()
	require.NoError(t, err)
	within := queue.Address{Segment: rewrites[0].First, Block: 1}
	require.NoError(t, s.settler.enter(rewrites[0], within))
	marked, marks := s.indexState().unsettled, s.indexing.marks
	require.NotEmpty(t, marked)
	require.NoError(t, s.settler.enter(rewrites[0], within))
	require.NoError(t, s.settler.unmark(marks))
	require.Equal(t, marked, s.indexState().unsettled)
	require.NoError(t, s.settler.unmark(s.indexing.marks))
	require.Empty(t, s.indexState().unsettled)
}

// While a document cannot be examined, the settler does not scan the index whenever the tail
// catches up.
func TestSettlerRestsAfterAFailure(t *testing.T) {
	f := awayFixture(t, newMemFixture(t))
	path := filepath.Join(f.queueDir, "0000000001-0000000001.0001.seg")
	content, err := vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	replace(t, f.fs, path, content[:len(content)/2])
	virtualtime.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f.options.Cache, f.options.Logger = nil, slog.New(slog.NewTextHandler(&log, nil))
		c, err := Open("jobs", f.queueDir, f.dir, &f.options)
		require.NoError(t, err)
		time.Sleep(3 * DefaultVerifyInterval) // the settler has failed
		synctest.Wait()
		c.serving.Load().settler.caughtUp()
		synctest.Wait()
		require.Len(t, c.serving.Load().settler.wake, 1, "the settler waits for the interval")
		require.NoError(t, c.Close())
		require.Equal(t, 1, strings.Count(log.String(), "removing stale entries from the index failed"), log.String())
	})
}

// A server that is not away, but has not read the delete before it was compacted away, may have
// the original file of the document open.
func TestStaleDocumentInAnOpenFile(t *testing.T) {
	source := newMemFixture(t)
	source.put("gone", documentOf("gone"))
	source.put("kept", documentOf("kept"))
	source.seal()
	source.put("more", documentOf("more"))
	f, known := newMemFixture(t), map[string]vfs.Info{}
	f.copyQueue(source, known)
	c := f.ready()
	requireDocument(t, c, "gone", documentOf("gone"))
	source.dropGone()
	f.copyQueue(source, known)
	end := source.reader().End()
	waitFor(t, c, "the rewrites are read", func(s Status) bool { return s.Position.Next == end.Next })
	requireGone(t, c)
	settled(t, c)
	require.Equal(t, []string{"kept", "last", "later", "more"}, indexed(t, c))
}

// An index that is built from a compacted queue trusts its entries at once.
func TestNoStaleEntriesInANewIndex(t *testing.T) {
	f := awayFixture(t, newMemFixture(t))
	require.NoError(t, f.fs.RemoveAll(f.dir))
	var log bytes.Buffer
	f.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := f.ready()
	settled(t, c)
	requireGone(t, c)
	require.NoError(t, c.Close())
	require.Contains(t, log.String(), "the queue has been read to its end")
	require.NotContains(t, log.String(), "removed index entries")
}

// An entry that a fetch has proved stale is removed, whatever brought it about. Until then it
// differs from the queue.
func TestFetchRemovesStaleEntry(t *testing.T) {
	f := awayFixture(t, newFixture(t, vfs.OS, t.TempDir()))
	differences := func() int64 {
		compared, err := CompareIndex(t.Context(), f.dir, f.queueDir, f.options.Now(), CompareMemory, nil)
		require.NoError(t, err)
		require.Equal(t, compared.Extra, compared.Differences(), compared.Examples)
		return compared.Extra
	}
	c := f.ready()
	settled(t, c)
	require.Zero(t, differences())
	entry, err := c.serving.Load().reader.lookUp([]byte("kept"))
	require.NoError(t, err)
	entry.address.Block += 7 // compaction has dropped that block
	var batch lsm.Batch
	for _, id := range []string{"dead", "gone"} {
		require.NoError(t, batch.Set([]byte(id), entry.append(nil)))
	}
	require.NoError(t, c.serving.Load().index.Apply(&batch))
	require.EqualValues(t, 2, differences())
	requireNone(t, c, "gone", docservice.ErrNotFound)
	_, answers, err := c.GetMany(nil, [][]byte{[]byte("dead")}, 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, docservice.ErrNotFound)
	waitFor(t, c, "they are removed", func(Status) bool { return len(indexed(t, c)) == 4 })
	require.Zero(t, differences())
	requireGone(t, c)
}
