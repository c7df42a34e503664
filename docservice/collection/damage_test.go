package collection

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
)

// replace replaces a file as rsync does: written under another name, then renamed.
func replace(t testing.TB, fs vfs.FS, path string, content []byte) {
	t.Helper()
	incoming := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".incoming")
	file, err := fs.Create(incoming)
	require.NoError(t, err)
	_, err = file.Write(content)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, fs.Rename(incoming, path))
}

// flipped returns content with one bit changed in the middle of the first occurrence of
// holds.
func flipped(t *testing.T, content []byte, holds string) []byte {
	t.Helper()
	at := bytes.Index(content, []byte(holds))
	require.GreaterOrEqual(t, at, 0)
	content = bytes.Clone(content)
	content[at+len(holds)/2] ^= 1
	return content
}

// sealedFixture has two sealed segments of 100 documents, and returns the path
// and content of the second one.
func sealedFixture(t *testing.T) (f *fixture, path string, content []byte) {
	f = newMemFixture(t)
	f.putMany("first", 100)
	f.seal()
	f.putMany("second", 100)
	f.seal()
	path, content = f.segment(2)
	return f, path, content
}

// segment returns the path and content of a sealed segment.
func (f *fixture) segment(id queue.SegmentID) (path string, content []byte) {
	f.t.Helper()
	path = filepath.Join(f.queueDir, sealedName(id))
	content, err := vfs.ReadFile(f.fs, path)
	require.NoError(f.t, err)
	return path, content
}

func hasFault(segment queue.SegmentID) func(Status) bool {
	return func(s Status) bool { return len(s.Faults) > 0 && s.Faults[0].Segment == segment }
}

func noFaults(s Status) bool { return len(s.Faults) == 0 }

// A fetch finds the damage before the background pass. The pass removes the fault when a
// sound copy has arrived.
func TestWrongByteInADocument(t *testing.T) {
	f, path, good := sealedFixture(t)
	replace(t, f.fs, path, flipped(t, good, documentOf("second-50")))
	f.options.VerifyInterval = time.Hour // but runs at once when a fetch finds damage
	c := f.ready()

	requireNone(t, c, "second-50", docservice.ErrUnavailable)
	requireDocument(t, c, "second-49", documentOf("second-49"))
	requireDocument(t, c, "second-51", documentOf("second-51"))
	status := c.Status()
	assert.True(t, status.Ready, "damage of one document leaves the collection ready")
	require.Len(t, status.Faults, 1)
	assert.Equal(t, queue.SegmentID(2), status.Faults[0].Segment)
	assert.Equal(t, path, status.Faults[0].Path)
	assert.False(t, status.Faults[0].StopsTail)
	assert.NotZero(t, status.Faults[0].Offset)
	assert.Contains(t, status.Faults[0].Reason, "second-50")

	_, answers, err := c.GetMany(nil, [][]byte{[]byte("second-50"), []byte("second-51")}, 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, docservice.ErrUnavailable)
	require.NoError(t, answers[1].Err)
	assert.Len(t, c.Status().Faults, 1, "found again, it is one fault")
}

// The background pass finds damage that no fetch has found, once.
func TestBackgroundPassFindsDamageAndItsEnd(t *testing.T) {
	f, path, good := sealedFixture(t)
	bad := flipped(t, flipped(t, good, documentOf("second-20")), documentOf("second-70"))
	replace(t, f.fs, path, bad)
	f.options.VerifyInterval = time.Millisecond
	c := f.ready()
	waitFor(t, c, "both are found", func(s Status) bool { return len(s.Faults) == 2 })
	requireNone(t, c, "second-20", docservice.ErrUnavailable)
	since := c.Status().Faults[0].Since

	replace(t, f.fs, path, flipped(t, good, documentOf("second-20")))
	waitFor(t, c, "one is gone", func(s Status) bool { return len(s.Faults) == 1 })
	assert.Equal(t, since, c.Status().Faults[0].Since)
	requireDocument(t, c, "second-70", documentOf("second-70"))

	replace(t, f.fs, path, good)
	waitFor(t, c, "the other is gone", noFaults)
	requireDocument(t, c, "second-20", documentOf("second-20"))
}

func TestWrongByteInATable(t *testing.T) {
	f, path, good := sealedFixture(t)
	replace(t, f.fs, path, flipped(t, good, "second-50"))
	c := f.open()
	waitFor(t, c, "the tail stops", hasFault(2))
	status := c.Status()
	assert.False(t, status.Ready)
	require.Len(t, status.Faults, 1)
	assert.True(t, status.Faults[0].StopsTail)
	assert.Equal(t, path, status.Faults[0].Path)
	assert.Positive(t, status.LagBytes())

	requireDocument(t, c, "first-99", documentOf("first-99"))
	requireNone(t, c, "second-99", docservice.ErrUnavailable) // it may be after the damage
	requireNone(t, c, "none", docservice.ErrUnavailable)

	since := status.Faults[0].Since
	f.clock.advance(time.Minute)
	waitFor(t, c, "the tail has retried", hasFault(2))
	assert.Equal(t, since, c.Status().Faults[0].Since)

	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	assert.Empty(t, c.Status().Faults)
	requireDocument(t, c, "second-50", documentOf("second-50"))
	requireDocument(t, c, "second-99", documentOf("second-99"))
	requireNone(t, c, "none", docservice.ErrNotFound)
}

// The documents of a deleted segment are unavailable until it returns.
func TestMissingSegment(t *testing.T) {
	f, path, good := sealedFixture(t)
	c := f.ready()
	require.NoError(t, c.Close())
	require.NoError(t, f.fs.Remove(path))

	c = f.open()
	requireNone(t, c, "second-1", docservice.ErrUnavailable)
	requireDocument(t, c, "first-1", documentOf("first-1"))
	waitFor(t, c, "it is missing", func(s Status) bool {
		return len(s.Faults) == 1 && s.Faults[0].Path == path && strings.Contains(s.Faults[0].Reason, "missing")
	})
	replace(t, f.fs, path, good)
	waitFor(t, c, "it can be read", func(Status) bool {
		_, err := c.Get(nil, []byte("second-1"))
		return err == nil
	})
}

// The same holds for an open segment, which the background pass does not verify by default,
// and for one with a wrong byte.
func TestOpenSegmentThatComesBack(t *testing.T) {
	f := newMemFixture(t)
	f.options.VerifyInterval = time.Millisecond
	f.putMany("first", 10)
	f.seal()
	f.putMany("second", 10)
	c := f.ready()
	require.NoError(t, c.Close())
	path := filepath.Join(f.queueDir, strings.TrimSuffix(sealedName(2), ".seg")+".open")
	content, err := vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	require.NoError(t, f.fs.Rename(path, path+".away"))

	c = f.open()
	requireNone(t, c, "second-1", docservice.ErrUnavailable)
	waitFor(t, c, "it is missing", hasFault(2))
	replace(t, f.fs, path, content)
	waitFor(t, c, "it is there", func(s Status) bool { return s.Ready && noFaults(s) })
	requireDocument(t, c, "second-1", documentOf("second-1"))

	require.NoError(t, c.Close())
	replace(t, f.fs, path, flipped(t, content, documentOf("second-1")))
	c = f.open()
	requireNone(t, c, "second-1", docservice.ErrUnavailable)
	require.Len(t, c.Status().Faults, 1)
	replace(t, f.fs, path, content)
	waitFor(t, c, "it is sound", noFaults)
	requireDocument(t, c, "second-1", documentOf("second-1"))
}

// The queue is missing when the collection is opened, and returns unchanged: the index has
// no new entries to read, and yet the end is reached.
func TestReadyWhenTheQueueComesBackAsItWas(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		f := newMemFixture(t)
		f.putMany("first", 10)
		if sealed {
			f.seal()
		}
		c := f.ready()
		require.NoError(t, c.Close())
		away := f.queueDir + "-away"
		require.NoError(t, f.fs.Rename(f.queueDir, away))
		require.NoError(t, f.fs.MkdirAll(f.queueDir))

		c = f.open()
		requireNone(t, c, "none", docservice.ErrUnavailable)
		waitFor(t, c, "the tail is idle", func(Status) bool { return c.serving.Load().health.tailState().idle })
		names, err := f.fs.List(away)
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, f.fs.Rename(filepath.Join(away, name), filepath.Join(f.queueDir, name)))
		}
		require.NoError(t, c.WaitReady(soon(t)))
		requireNone(t, c, "none", docservice.ErrNotFound)
		requireDocument(t, c, "first-1", documentOf("first-1"))
		require.NoError(t, c.Close())
	}
}

// An index that cannot be written when the collection is opened is a problem of the index, and the
// lag counts from the first entry that is not in it.
func TestIndexUnwrittenSinceStart(t *testing.T) {
	for _, failure := range []error{syscall.ENOSPC, syscall.EROFS} {
		t.Run(failure.Error(), func(t *testing.T) {
			var failing atomic.Bool
			fsys := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
				if failing.Load() && op.Kind == vfs.OpCreateAppendMap && strings.HasPrefix(op.Name, "/index") {
					return &fs.PathError{Op: "create", Path: op.Name, Err: failure}
				}
				return nil
			})
			f := newFixture(t, fsys, "/")
			f.putMany("first", 10)
			require.NoError(t, f.ready().Close())
			failing.Store(true)
			f.putMany("second", 10)
			f.options.Now = func() time.Time { return time.Now().Add(time.Hour) }
			c := f.open()
			waitFor(t, c, "the tail stops", func(s Status) bool { return len(s.Faults) == 1 && s.Faults[0].IndexUnwritten })
			status := c.Status()
			require.True(t, status.Faults[0].StopsTail)
			require.Contains(t, status.Faults[0].Reason, failure.Error())
			require.ErrorIs(t, c.IndexStats().Problem, failure)
			require.GreaterOrEqual(t, status.Lag, time.Hour)
			requireDocument(t, c, "first-9", documentOf("first-9"))

			failing.Store(false)
			require.NoError(t, c.WaitReady(soon(t)))
			require.NoError(t, c.IndexStats().Problem)
			require.Zero(t, c.Status().Lag)
		})
	}
}

// A full disk under the index stops the tail; no entry is lost.
func TestIndexDiskFull(t *testing.T) {
	var full atomic.Bool
	fs := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		creates := op.Kind == vfs.OpCreate || op.Kind == vfs.OpCreateAppendMap
		if full.Load() && creates && strings.HasPrefix(op.Name, "/index") {
			return syscall.ENOSPC
		}
		return nil
	})
	f := newFixture(t, fs, "/")
	f.options.MemtableBytes = 16 << 10
	f.putMany("first", 100)
	c := f.ready()
	full.Store(true)
	f.putMany("second", 1000)
	waitFor(t, c, "the tail stops", func(s Status) bool { return len(s.Faults) == 1 && s.Faults[0].StopsTail })
	assert.Contains(t, c.Status().Faults[0].Reason, syscall.ENOSPC.Error())
	requireDocument(t, c, "first-99", documentOf("first-99"))
	requireNone(t, c, "second-999", docservice.ErrUnavailable)

	full.Store(false)
	if err := c.WaitReady(soon(t)); err != nil {
		require.Fail(t, "not ready", "%v: %+v", err, c.Status())
	}
	for i := range 1000 {
		id := fmt.Sprintf("second-%d", i)
		requireDocument(t, c, id, documentOf(id))
	}
}

// Damage in the index makes an id unavailable, so that the client asks another server.
func TestWrongByteInTheIndex(t *testing.T) {
	f := newMemFixture(t)
	f.options.MemtableBytes = 16 << 10
	f.putMany("a", 3000)
	c := f.ready()
	require.NoError(t, c.serving.Load().index.Flush())
	require.NoError(t, c.serving.Load().index.WaitIdle(soon(t)))
	require.NoError(t, c.Close())

	indexDir := firstIndex.path(f.dir)
	names, err := f.fs.List(indexDir)
	require.NoError(t, err)
	for _, name := range names {
		path := filepath.Join(indexDir, name)
		content, err := vfs.ReadFile(f.fs, path)
		require.NoError(t, err)
		if bytes.Contains(content, []byte("a-1500")) {
			replace(t, f.fs, path, flipped(t, content, "a-1500"))
		}
	}
	f.options.RetryInterval = time.Hour // no replacement is built meanwhile
	c = f.ready()
	requireNone(t, c, "a-1500", docservice.ErrUnavailable)
	status := c.Status()
	require.Len(t, status.Faults, 1)
	assert.Equal(t, indexDir, filepath.Dir(status.Faults[0].Path))
	assert.Zero(t, status.Faults[0].Segment)
	assert.False(t, status.Ready)
	requireDocument(t, c, "a-1", documentOf("a-1"))
	requireNone(t, c, "none", docservice.ErrUnavailable)
	_, err = c.Count(t.Context(), nil)
	require.ErrorIs(t, err, docservice.ErrUnavailable)
}

// TestFaultOfASupersededFile: a missing segment is a fault until a rewrite that supersedes it is
// here.
func TestFaultOfASupersededFile(t *testing.T) {
	f := newMemFixture(t)
	f.put("kept", documentOf("kept"))
	f.put("other", "an earlier version")
	f.seal()
	f.put("other", documentOf("other"))
	f.seal()
	source := newFixture(t, f.fs.(*vfs.Mem).CrashClone(vfs.KeepAll), string(filepath.Separator))
	_, err := maintain.Compact(t.Context(), source.queueDir, &maintain.CompactOptions{FS: source.fs, MaxDead: 0.1})
	require.NoError(t, err)

	require.NoError(t, f.ready().Close())
	path, _ := f.segment(1)
	require.NoError(t, f.fs.Remove(path))
	f.options.VerifyInterval = time.Millisecond
	c := f.open()
	requireNone(t, c, "kept", docservice.ErrUnavailable)
	status := c.Status()
	require.Len(t, status.Faults, 1)
	require.Equal(t, "the file is missing", status.Faults[0].Reason)

	names, err := source.fs.List(source.queueDir)
	require.NoError(t, err)
	for _, name := range names {
		if rewrite, ok := parseSegmentName(name); ok && rewrite.generation > 0 {
			content, err := vfs.ReadFile(source.fs, filepath.Join(source.queueDir, name))
			require.NoError(t, err)
			replace(t, f.fs, filepath.Join(f.queueDir, name), content)
		}
	}
	waitFor(t, c, "no fault is left", func(s Status) bool { return len(s.Faults) == 0 })
	requireDocument(t, c, "kept", documentOf("kept"))
}

// TestFaultOfAFileThatCouldNotBeRead: a verified segment cannot be read for a time, neither by a
// fetch nor by the verification that follows. The fault ends when it can be read again.
func TestFaultOfAFileThatCouldNotBeRead(t *testing.T) {
	f := newMemFixture(t)
	f.put("a", documentOf("a"))
	f.seal()
	f.options.VerifyInterval = time.Millisecond
	c := f.ready()
	waitFor(t, c, "the segment is verified", func(Status) bool { return f.exists(firstIndex.verifiedPath(f.dir)) })
	require.NoError(t, c.Close())

	var fails atomic.Bool
	var attempts atomic.Int64
	fails.Store(true)
	f.options.FS = vfs.NewFault(f.fs, func(op vfs.Op) error {
		if fails.Load() && op.Kind == vfs.OpOpen && filepath.Ext(op.Name) == ".seg" {
			attempts.Add(1)
			return syscall.EIO
		}
		return nil
	})
	c = f.open()
	requireNone(t, c, "a", docservice.ErrUnavailable)
	require.NotEmpty(t, c.Status().Faults)
	before := attempts.Load()
	require.Eventually(t, func() bool { return attempts.Load() > before+4 }, patience, time.Millisecond, "the segment is verified")
	fails.Store(false)
	waitFor(t, c, "no fault is left", func(s Status) bool { return len(s.Faults) == 0 })
	requireDocument(t, c, "a", documentOf("a"))
}
