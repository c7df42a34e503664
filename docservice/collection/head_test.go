package collection

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
)

// copyOf makes f a copy of the queue of another fixture: its head, and the segments up to a
// number.
func (f *fixture) copyOf(source *fixture, through queue.SegmentID) {
	f.t.Helper()
	names, err := source.fs.List(source.queueDir)
	require.NoError(f.t, err)
	for _, name := range names {
		if n, ok := parseSegmentName(name); name != queue.HeadName && (!ok || n.id > through) {
			continue
		}
		content, err := vfs.ReadFile(source.fs, filepath.Join(source.queueDir, name))
		require.NoError(f.t, err)
		replace(f.t, f.fs, filepath.Join(f.queueDir, name), content)
	}
}

// threeSegments returns a source with three sealed segments of ten documents.
func threeSegments(t *testing.T) *fixture {
	source := newMemFixture(t)
	for _, prefix := range []string{"first", "second", "third"} {
		source.putMany(prefix, 10)
		source.seal()
	}
	return source
}

// TestReadyAtTheEndThatTheHeadNames copies a queue segment by segment. No id is "not found"
// before the end named by the first head file is read, also after a restart; later appends
// at the source do not matter.
func TestReadyAtTheEndThatTheHeadNames(t *testing.T) {
	source := threeSegments(t)
	f := newMemFixture(t)
	c := f.open()
	requireNone(t, c, "third-1", docservice.ErrUnavailable)
	for through := queue.SegmentID(1); through <= 2; through++ {
		f.copyOf(source, through)
		waitFor(t, c, "all that is here is read", func(s Status) bool {
			return s.Position.Next.Segment == through && s.PresentBytes == s.TailedBytes
		})
		requireDocument(t, c, "first-1", documentOf("first-1"))
		requireNone(t, c, "third-1", docservice.ErrUnavailable)
		require.False(t, c.Ready())
		require.NoError(t, c.Close())
		c = f.open()
	}
	f.copyOf(source, 3)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "third-1", documentOf("third-1"))
	requireNone(t, c, "none", docservice.ErrNotFound)

	source.putMany("fourth", 10)
	source.seal()
	f.copyOf(source, 3)
	c.serving.Load().follower.readHead()
	require.True(t, c.Ready(), "a later head does not end readiness")
}

// TestMaxStaleness: the collection is not ready when the head is older than the limit, or
// missing.
func TestMaxStaleness(t *testing.T) {
	f := newMemFixture(t)
	f.clock.now = time.Now() // the writer of the head uses the real clock
	f.options.MaxStaleness = time.Hour
	f.put("id", "document")
	f.seal()
	c := f.ready()
	requireNone(t, c, "none", docservice.ErrNotFound)
	f.clock.advance(2 * time.Hour)
	waitFor(t, c, "it is stale", func(s Status) bool { return !s.Ready && strings.Contains(s.Index.Cause, "older") })
	requireNone(t, c, "none", docservice.ErrUnavailable)
	requireDocument(t, c, "id", "document")
	f.clock.advance(-2 * time.Hour)
	require.NoError(t, c.WaitReady(soon(t)))
	require.NoError(t, c.Close())

	require.NoError(t, f.fs.Remove(filepath.Join(f.queueDir, queue.HeadName)))
	c = f.open()
	waitFor(t, c, "all is read", func(s Status) bool { return s.LagBytes() == 0 && c.serving.Load().health.tailState().current })
	requireNone(t, c, "none", docservice.ErrUnavailable)
}

// TestDamagedHead: the end of the queue is unknown until a sound head file arrives.
func TestDamagedHead(t *testing.T) {
	f := newMemFixture(t)
	f.put("id", "document")
	f.seal()
	path := filepath.Join(f.queueDir, queue.HeadName)
	content, err := vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	replace(t, f.fs, path, flipped(t, content, "highest"))
	c := f.open()
	waitFor(t, c, "all is read", func(s Status) bool { return c.serving.Load().health.tailState().current })
	status := c.Status()
	require.False(t, status.Ready)
	require.Len(t, status.Faults, 1)
	require.Equal(t, path, status.Faults[0].Path)
	requireNone(t, c, "none", docservice.ErrUnavailable)
	requireDocument(t, c, "id", "document")
	replace(t, f.fs, path, content)
	require.NoError(t, c.WaitReady(soon(t)))
	require.Empty(t, c.Status().Faults)
	replace(t, f.fs, path, flipped(t, content, "highest"))
	waitFor(t, c, "it is found", func(s Status) bool { return len(s.Faults) == 1 })
	require.True(t, c.Ready(), "the end is known")
}

// TestForkIsKeptOverRestarts gives an index the files of another history of its queue, of
// the same sizes. It is not ready, even after restarts, until the right files are back.
// Documents that are equal in both histories are served.
func TestForkIsKeptOverRestarts(t *testing.T) {
	source := newMemFixture(t)
	source.putMany("common", 10)
	source.seal()
	other := newFixture(t, source.fs.(*vfs.Mem).CrashClone(vfs.KeepAll), string(filepath.Separator))
	for n, f := range []*fixture{source, other} {
		f.putMany([]string{"before", "afterr"}[n], 10)
		f.seal()
	}
	other.putMany("later", 10)
	other.seal()
	f := newMemFixture(t)
	f.copyOf(source, 2)
	c := f.ready()
	requireDocument(t, c, "before-1", documentOf("before-1"))
	f.copyOf(other, 3)
	for range 3 {
		waitFor(t, c, "it has forked", func(s Status) bool { return !s.Ready && strings.Contains(s.Index.Cause, "different histories") })
		requireNone(t, c, "later-1", docservice.ErrUnavailable)
		requireNone(t, c, "afterr-1", docservice.ErrUnavailable)
		if document, err := c.Get(nil, []byte("before-1")); err == nil { // its file is still open
			require.Equal(t, documentOf("before-1"), string(document))
		} else {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
		}
		requireDocument(t, c, "common-1", documentOf("common-1"))
		require.Len(t, c.Status().Faults, 1, "the files are sound")
		require.Contains(t, c.Status().Faults[0].Reason, "remove "+f.dir)
		require.NoError(t, c.Close())
		c = f.open()
	}
	require.NoError(t, f.fs.Remove(filepath.Join(f.queueDir, sealedName(3))))
	f.copyOf(source, 2)
	waitFor(t, c, "the files are back", func(s Status) bool { return s.Ready })
	requireDocument(t, c, "before-1", documentOf("before-1"))
	requireNone(t, c, "later-1", docservice.ErrNotFound)
}

// TestTruncatedQueueIsIndexedFromItsStart truncates entries that an index holds. Until
// another index has been built, no id is "not found"; then the earlier documents are
// served.
func TestTruncatedQueueIsIndexedFromItsStart(t *testing.T) {
	for _, restart := range []bool{false, true} {
		f := newMemFixture(t)
		f.putMany("doc", 10)
		f.put("changed", "good")
		f.seal()
		f.put("changed", "bad")
		f.put("new", "bad")
		at, err := f.writer.Delete([]byte("doc-1"))
		require.NoError(t, err)
		f.seal()
		f.options.RetryInterval = time.Hour // the test takes each step itself
		c := f.ready()
		require.NoError(t, c.WaitFor(soon(t), at))
		requireDocument(t, c, "changed", "bad")
		requireNone(t, c, "doc-1", docservice.ErrNotFound)
		if restart {
			require.NoError(t, c.Close())
		}
		require.NoError(t, f.writer.Close())
		f.writer = nil
		_, err = maintain.Truncate(t.Context(), f.queueDir, queue.Address{Segment: 2}, &maintain.TruncateOptions{FS: f.fs})
		require.NoError(t, err)
		if restart {
			c = f.open()
		}
		waitFor(t, c, "the tail has noticed", func(s Status) bool { return !s.Ready && strings.Contains(s.Index.Cause, "truncated") })
		requireNone(t, c, "doc-1", docservice.ErrUnavailable)
		require.NoError(t, c.advanceReplacement())
		require.NoError(t, c.next().health.waitUntil(soon(t), func() bool { return c.next().health.gap.Load() == nil }))
		require.NoError(t, c.advanceReplacement())
		require.NoError(t, c.WaitReady(soon(t)))
		requireDocument(t, c, "changed", "good")
		requireDocument(t, c, "doc-1", documentOf("doc-1"))
		requireNone(t, c, "new", docservice.ErrNotFound)
		require.Empty(t, c.Status().Faults)
		f.put("new", "better")
		waitFor(t, c, "it follows", func(Status) bool { _, err := c.Get(nil, []byte("new")); return err == nil })
	}
}

// TestEmptyQueueIsReady when a required head file says that it has no entries, whether the
// file or the collection is first. Entries that arrive later are read.
func TestEmptyQueueIsReady(t *testing.T) {
	for _, headFirst := range []bool{true, false} {
		f := newMemFixture(t)
		f.options.Published = true
		writeHead := func() { require.NoError(t, queue.WriteHead(f.fs, f.queueDir, queue.Head{Time: time.Now()})) }
		if headFirst {
			writeHead()
		}
		c := f.open()
		waitFor(t, c, "the tail has caught up", func(Status) bool { return c.serving.Load().health.tailState().current })
		if !headFirst {
			requireNone(t, c, "none", docservice.ErrUnavailable)
			writeHead()
		}
		require.NoError(t, c.WaitReady(soon(t)))
		requireNone(t, c, "first-1", docservice.ErrNotFound)
		f.copyOf(threeSegments(t), 3)
		waitFor(t, c, "all is read", func(s Status) bool { return s.Position.Next.Segment == 3 })
		requireDocument(t, c, "third-1", documentOf("third-1"))
		// Entries that the head does not name are here when the collection is opened again.
		require.NoError(t, c.Close())
		writeHead()
		c = f.open()
		require.NoError(t, c.WaitReady(soon(t)))
		require.NoError(t, c.Close())
	}
	f := newMemFixture(t)
	require.NoError(t, queue.WriteHead(f.fs, f.queueDir, queue.Head{Time: time.Now()}))
	c := f.open()
	waitFor(t, c, "the tail has caught up", func(Status) bool { return c.serving.Load().health.tailState().current })
	requireNone(t, c, "none", docservice.ErrUnavailable)
}

// TestAQueueThatIsNoLongerEmpty: the files of a queue that was empty arrive while the collection is
// behind, with a head file or, as increments do, without one. It is not ready before their entries are
// read, although the last head file that it has read says that there are none.
func TestAQueueThatIsNoLongerEmpty(t *testing.T) {
	for i := range 40 {
		f := newMemFixture(t)
		f.options.Published = true
		f.options.RetryInterval = time.Hour // the head file is not read periodically
		empty := queue.Head{Time: time.Now()}
		require.NoError(t, queue.WriteHead(f.fs, f.queueDir, empty))
		c := f.ready()
		c.SetBehind(true)
		requireNone(t, c, "third-1", docservice.ErrUnavailable)
		f.copyOf(threeSegments(t), 3)
		if i%2 == 1 {
			require.NoError(t, queue.WriteHead(f.fs, f.queueDir, empty))
		}
		c.SetBehind(false)
		if c.Ready() {
			requireDocument(t, c, "third-1", documentOf("third-1"))
		}
		require.NoError(t, c.WaitReady(soon(t)))
		requireDocument(t, c, "third-1", documentOf("third-1"))
		require.NoError(t, c.Close())
	}
}
