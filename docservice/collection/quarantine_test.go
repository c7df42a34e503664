package collection

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
)

// asCopy makes the directory a copy as rsync makes it: without a writer and its lock.
// Damaged files are quarantined at once.
func (f *fixture) asCopy() {
	f.t.Helper()
	require.NoError(f.t, f.writer.Close())
	f.writer = nil
	require.NoError(f.t, f.fs.Remove(filepath.Join(f.queueDir, lockName)))
	f.options.Quarantine = true
	f.options.QuarantineAfter = time.Nanosecond
	f.options.VerifyInterval = time.Millisecond
}

// index indexes the queue before its segments are verified: if one is quarantined before its last
// entry was read, the collection waits for another copy.
func (f *fixture) index() {
	f.t.Helper()
	interval := f.options.VerifyInterval
	f.options.VerifyInterval = -1
	require.NoError(f.t, f.ready().Close())
	f.options.VerifyInterval = interval
}

func (f *fixture) exists(path string) bool {
	f.t.Helper()
	_, err := f.fs.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(f.t, err)
	}
	return err == nil
}

func (f *fixture) waitRemoved(path string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return !f.exists(path) }, patience, time.Millisecond)
}

func quarantined(n uint64) func(Status) bool {
	return func(s Status) bool { return s.Quarantined == n }
}

func TestQuarantineServesSoundDocuments(t *testing.T) {
	f, path, good := sealedFixture(t)
	f.asCopy()
	replace(t, f.fs, path, flipped(t, good, documentOf("second-50")))
	f.index()
	c := f.open()
	waitFor(t, c, "it is quarantined", quarantined(1))

	for range 2 { // the second time after a restart
		assert.False(t, f.exists(path))
		assert.True(t, f.exists(path+queue.QuarantineSuffix))
		requireNone(t, c, "second-50", docservice.ErrUnavailable)
		requireDocument(t, c, "second-49", documentOf("second-49"))
		requireDocument(t, c, "first-99", documentOf("first-99"))
		status := c.Status()
		require.NotEmpty(t, status.Faults)
		assert.Equal(t, queue.SegmentID(2), status.Faults[0].Segment)
		assert.Equal(t, path+queue.QuarantineSuffix, status.Faults[0].Path)
		require.NoError(t, c.Close())
		c = f.open()
	}
	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	waitFor(t, c, "the copy is sound", noFaults)
	requireDocument(t, c, "second-50", documentOf("second-50"))
	f.waitRemoved(path + queue.QuarantineSuffix)
	requireDocument(t, c, "second-49", documentOf("second-49"))
}

// If the tail has not read a quarantined file, no id is "not found", also after a restart.
func TestQuarantineOfUnreadSegment(t *testing.T) {
	f, path, good := sealedFixture(t)
	f.asCopy()
	replace(t, f.fs, path, flipped(t, good, "second-50"))
	c := f.open()
	waitFor(t, c, "it is quarantined", quarantined(1))
	for range 2 {
		waitFor(t, c, "the tail is idle", func(s Status) bool {
			return len(s.Faults) == 1 && !s.Faults[0].StopsTail && s.Faults[0].Segment == 2
		})
		assert.False(t, c.Status().Ready)
		requireNone(t, c, "none", docservice.ErrUnavailable)
		requireDocument(t, c, "first-1", documentOf("first-1"))
		require.NoError(t, c.Close())
		c = f.open()
	}
	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "second-99", documentOf("second-99"))
	requireNone(t, c, "none", docservice.ErrNotFound)
}

// TestQuarantineOfARewriteWithoutFooter: the footer of a rewrite is damaged after the rewrite was verified,
// so that it looks like a file that is being copied. A fetch has the rewrite verified again, although
// the original is here, which is sound.
func TestQuarantineOfARewriteWithoutFooter(t *testing.T) {
	f := newMemFixture(t)
	f.put("a", documentOf("a"))
	f.put("b", "an earlier version")
	f.seal()
	f.put("b", documentOf("b"))
	f.seal()
	_, err := maintain.Compact(t.Context(), f.queueDir, &maintain.CompactOptions{FS: f.fs, MaxDead: 0.1})
	require.NoError(t, err)
	rewrite := filepath.Join(f.queueDir, "0000000001-0000000001.0001.seg")
	good, err := vfs.ReadFile(f.fs, rewrite)
	require.NoError(t, err)
	f.asCopy()
	c := f.ready()
	waitFor(t, c, "the rewrite is verified", func(Status) bool { return f.exists(firstIndex.verifiedPath(f.dir)) })
	require.NoError(t, c.Close())

	require.NoError(t, f.fs.(*vfs.Mem).FlipBit(rewrite, int64(len(good))-1, 0))
	c = f.open()
	requireNone(t, c, "a", docservice.ErrUnavailable)
	waitFor(t, c, "it is quarantined", quarantined(1))
	require.True(t, f.exists(rewrite+queue.QuarantineSuffix))
	replace(t, f.fs, rewrite, good)
	require.NoError(t, c.WaitReady(soon(t)))
	waitFor(t, c, "the copy is sound", noFaults)
	requireDocument(t, c, "a", documentOf("a"))
}

// TestSegmentWhoseFsyncFailed: fsync of a segment fails once, and every later fsync
// succeeds without writing its bytes. The segment is copied again before a power cut loses
// them.
func TestSegmentWhoseFsyncFailed(t *testing.T) {
	mem := vfs.NewMem()
	var armed atomic.Bool
	tailed := make(chan struct{})
	f := newFixture(t, vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && filepath.Base(op.Name) == sealedName(1) && armed.CompareAndSwap(true, false) {
			<-tailed // a server that quarantines the segment first is not ready
			return &vfs.LostPagesError{Err: syscall.EIO}
		}
		return nil
	}), string(filepath.Separator))
	f.putMany("first", 100)
	f.seal()
	path, content := f.segment(1)
	f.asCopy()
	replace(t, f.fs, path, content)
	armed.Store(true)
	c := f.ready()
	close(tailed)
	waitFor(t, c, "it is quarantined", quarantined(1))
	require.Contains(t, fmt.Sprint(c.Status().Faults), "waiting for another copy")
	requireDocument(t, c, "first-50", documentOf("first-50"))
	require.Empty(t, f.keptResults())

	replace(t, f.fs, path, content)
	waitFor(t, c, "the copy is sound", noFaults)
	f.waitVerified(1)
	require.NoError(t, mem.SyncDir(f.queueDir))
	after, err := vfs.ReadFile(mem.CrashClone(vfs.KeepSynced), path)
	require.NoError(t, err)
	require.Equal(t, content, after)
}

// A segment that is damaged at its source is copied again only once.
func TestQuarantineTriesOnce(t *testing.T) {
	f, path, good := sealedFixture(t)
	f.asCopy()
	log := f.captureLog()
	bad := flipped(t, good, documentOf("second-50"))
	replace(t, f.fs, path, bad)
	f.index()
	c := f.open()
	waitFor(t, c, "it is quarantined", quarantined(1))

	replace(t, f.fs, path, bad)
	log.wait(t, "the previous copy was damaged, too")
	assert.True(t, f.exists(path))
	assert.Equal(t, uint64(1), c.Status().Quarantined)
	requireNone(t, c, "second-50", docservice.ErrUnavailable)
	requireDocument(t, c, "second-51", documentOf("second-51"))

	// Again after a restart, because a power loss may have damaged the copy.
	require.NoError(t, c.Close())
	c = f.open()
	waitFor(t, c, "it is quarantined again", quarantined(1))
	requireDocument(t, c, "second-51", documentOf("second-51"))
	replace(t, f.fs, path, good)
	f.waitRemoved(path + queue.QuarantineSuffix)
	requireDocument(t, c, "second-50", documentOf("second-50"))

	replace(t, f.fs, path, bad)
	waitFor(t, c, "it is quarantined again", quarantined(2))
}

func TestQuarantineOfAnOpenSegment(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("first", 100)
	f.putMany("second", 100)
	path := filepath.Join(f.queueDir, "0000000001.open")
	good, err := vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	f.asCopy()
	require.NoError(t, f.fs.Remove(filepath.Join(f.queueDir, sealedName(1))))
	replace(t, f.fs, path, flipped(t, good, "first-50"))
	c := f.open()
	waitFor(t, c, "it is quarantined", quarantined(1))
	assert.False(t, c.Status().Ready)

	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "first-50", documentOf("first-50"))
	waitFor(t, c, "no fault is left", noFaults)
	assert.True(t, f.exists(path+queue.QuarantineSuffix), "until the sealed segment has arrived and is sound")
}

// A source restored from a backup has sealed less than was read from it before.
func TestQuarantineOfADivergedSegment(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("first", 50)
	open := filepath.Join(f.queueDir, "0000000001.open")
	early, err := vfs.ReadFile(f.fs, open)
	require.NoError(t, err)
	f.putMany("second", 50)
	f.seal()
	path, good := f.segment(1)
	f.asCopy()
	c := f.ready()
	require.NoError(t, c.Close())

	require.NoError(t, f.fs.MkdirAll("/restored"))
	replace(t, f.fs, "/restored/0000000001.open", early)
	w, err := queue.OpenWriter("/restored", &queue.WriterOptions{FS: f.fs})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	short, err := vfs.ReadFile(f.fs, "/restored/"+sealedName(1))
	require.NoError(t, err)
	replace(t, f.fs, path, short)

	c = f.open()
	waitFor(t, c, "it is quarantined", quarantined(1))
	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "second-49", documentOf("second-49"))
}

// In the directory of the writer the damaged file is the only copy.
func TestNoQuarantineWhereTheQueueIsWritten(t *testing.T) {
	f, path, good := sealedFixture(t)
	f.options.Quarantine, f.options.QuarantineAfter = true, time.Nanosecond
	f.options.VerifyInterval = time.Millisecond
	log := f.captureLog()
	replace(t, f.fs, path, flipped(t, good, documentOf("second-50")))
	c := f.ready()
	log.wait(t, "the queue is written in this directory")
	assert.True(t, f.exists(path))
	assert.Zero(t, c.Status().Quarantined)
	requireNone(t, c, "second-50", docservice.ErrUnavailable)
}

// A file that is still being written is not quarantined.
func TestNoQuarantineOfAFileThatChanges(t *testing.T) {
	f, path, good := sealedFixture(t)
	f.asCopy()
	f.options.QuarantineAfter = time.Hour
	replace(t, f.fs, path, good[:len(good)/2])
	c := f.open()
	waitFor(t, c, "it is found incomplete", hasFault(2))
	q := &quarantine{damaged: map[string]sighting{}, tried: map[string]time.Time{}}
	long := time.Now().Add(-2 * time.Hour)
	c.serving.Load().verifier.quarantineIfDue(q, path, Fault{Segment: 2})
	seen := q.damaged[path]
	seen.since = long
	q.damaged[path] = seen
	replace(t, f.fs, path, good[:len(good)/2+1])
	c.serving.Load().verifier.quarantineIfDue(q, path, Fault{Segment: 2})
	assert.True(t, q.damaged[path].since.After(long), "the time restarts")
	assert.True(t, f.exists(path))
}

// logBuffer is a log with a wait for text.
type logBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *logBuffer) wait(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return bytes.Contains(b.buffer.Bytes(), []byte(text))
	}, patience, time.Millisecond, "waiting for the log to say %q", text)
}

func (f *fixture) captureLog() *logBuffer {
	log := &logBuffer{}
	f.options.Logger = slog.New(slog.NewTextHandler(log, nil))
	return log
}
