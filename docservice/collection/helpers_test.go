package collection

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/queue"
)

// clock is a clock set by tests.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is a queue that is written and served in one directory.
type fixture struct {
	t        testing.TB
	fs       vfs.FS
	queueDir string
	dir      string
	clock    *clock
	writer   *queue.Writer
	// options of the collections; FS is set.
	options Options
}

func newFixture(t testing.TB, fs vfs.FS, root string) *fixture {
	t.Helper()
	f := &fixture{
		t:        t,
		fs:       fs,
		queueDir: filepath.Join(root, "queue"),
		dir:      filepath.Join(root, "index"),
		clock:    newClock(),
	}
	f.options = Options{
		FS:             fs,
		PollInterval:   time.Millisecond,
		RetryInterval:  time.Millisecond,
		VerifyInterval: -1,
		SweepInterval:  -1,
		ScrubInterval:  -1,
		Now:            f.clock.Now,
	}
	for _, dir := range []string{f.queueDir, f.dir} {
		require.NoError(t, fs.MkdirAll(dir))
	}
	require.NoError(t, fs.SyncDir(root))
	return f
}

// newMemFixture returns a fixture on an in-memory file system.
func newMemFixture(t testing.TB) *fixture {
	return newFixture(t, vfs.NewMem(), string(filepath.Separator))
}

// queueWriter opens the queue for writing, once. Documents are stored uncompressed, so that
// tests find their bytes.
func (f *fixture) queueWriter() *queue.Writer {
	f.t.Helper()
	if f.writer == nil {
		writer, err := queue.OpenWriter(f.queueDir, &queue.WriterOptions{
			FS: f.fs, Codec: "none", BlockBytes: 4 << 10, Now: f.clock.Now,
		})
		require.NoError(f.t, err)
		f.writer = writer
		f.t.Cleanup(func() { writer.Close() })
	}
	return f.writer
}

// put appends and flushes a document.
func (f *fixture) put(id, document string) queue.Address {
	f.t.Helper()
	at, err := f.queueWriter().Append([]byte(id), []byte(document))
	require.NoError(f.t, err)
	require.NoError(f.t, f.writer.Flush())
	return at
}

// putMany appends n documents, prefix-0 and so on, and flushes them.
func (f *fixture) putMany(prefix string, n int) (last queue.Address) {
	f.t.Helper()
	for i := range n {
		var err error
		id := fmt.Sprintf("%s-%d", prefix, i)
		last, err = f.queueWriter().Append([]byte(id), []byte(documentOf(id)))
		require.NoError(f.t, err)
	}
	require.NoError(f.t, f.writer.Flush())
	return last
}

// documentOf returns the document that putMany writes for an id.
func documentOf(id string) string {
	return fmt.Sprintf(`{"id":%q,"text":"the document of %s, for ever"}`, id, id)
}

// copyQueue makes the queue a copy of another one, as rsync --delete-after does. known are the
// files of the source that were copied before.
func (f *fixture) copyQueue(source *fixture, known map[string]vfs.Info) {
	f.t.Helper()
	there, err := source.fs.List(source.queueDir)
	require.NoError(f.t, err)
	there = slices.DeleteFunc(there, func(name string) bool {
		_, isSegment := queue.ParseFileName(name)
		return !isSegment && filepath.Ext(name) != ".head"
	})
	for _, name := range there { // the head is the first
		path := filepath.Join(source.queueDir, name)
		info, err := source.fs.Stat(path)
		require.NoError(f.t, err)
		if info == known[name] {
			continue
		}
		content, err := vfs.ReadFile(source.fs, path)
		require.NoError(f.t, err)
		require.NoError(f.t, vfs.WriteFileAtomic(f.fs, filepath.Join(f.queueDir, name), content))
		known[name] = info
	}
	here, err := f.fs.List(f.queueDir)
	require.NoError(f.t, err)
	for _, name := range here {
		if !slices.Contains(there, name) {
			require.NoError(f.t, f.fs.Remove(filepath.Join(f.queueDir, name)))
			delete(known, name)
		}
	}
}

func (f *fixture) seal() {
	f.t.Helper()
	require.NoError(f.t, f.queueWriter().Seal())
}

// open opens the collection and closes it at the end of the test.
func (f *fixture) open() *Collection {
	f.t.Helper()
	c, err := Open("jobs", f.queueDir, f.dir, &f.options)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { c.Close() })
	return c
}

// ready opens the collection and waits until it is ready.
func (f *fixture) ready() *Collection {
	f.t.Helper()
	c := f.open()
	if err := c.WaitReady(soon(f.t)); err != nil {
		require.Fail(f.t, "not ready", "%v: %+v; the queue ends at %v", err, c.Status(), c.serving.Load().queue.End())
	}
	return c
}

// patience is the timeout of waits: longer than they take on any loaded machine.
const patience = 3 * time.Minute

// soon returns a context that ends before the test would hang.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// waitFor waits until the status satisfies wanted.
func waitFor(t testing.TB, c *Collection, what string, wanted func(Status) bool) {
	t.Helper()
	ctx := soon(t)
	for {
		serving := c.serving.Load() // it may be replaced at any time
		serving.health.mu.Lock()
		changed := serving.health.mu.changed
		serving.health.mu.Unlock()
		if wanted(c.Status()) {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Millisecond): // the store may be replaced
		case <-ctx.Done():
			require.Fail(t, "timed out waiting: "+what, "%+v", c.Status())
		}
	}
}

func requireDocument(t testing.TB, c *Collection, id, want string) {
	t.Helper()
	got, err := c.Get(nil, []byte(id))
	require.NoError(t, err, id)
	require.Equal(t, want, string(got), id)
}

func requireNone(t testing.TB, c *Collection, id string, want error) {
	t.Helper()
	got, err := c.Get([]byte("before"), []byte(id))
	require.ErrorIs(t, err, want, id)
	require.Equal(t, "before", string(got), "dst must be as it was")
}
