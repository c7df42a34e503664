package queue_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"docstore/internal/checksum"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var updateFlag = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queueDir is the directory of the queues in tests on vfs.Mem.
const queueDir = "/queue"

func newMem(t testing.TB) *vfs.Mem {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll(queueDir))
	require.NoError(t, mem.SyncDir("/"))
	return mem
}

// testStart is the initial time of the tests' clocks.
var testStart = time.UnixMilli(1_700_000_000_000)

// testOptions makes runs deterministic: the same entries give the same files.
func testOptions(fsys vfs.FS) *queue.WriterOptions {
	now := testStart
	opts := &queue.WriterOptions{
		FS:    fsys,
		Codec: "none",
		Now: func() time.Time {
			now = now.Add(time.Millisecond)
			return now
		},
	}
	opts.SetTest(func() time.Time { return testStart }, testQueueID)
	return opts
}

func testQueueID() ([16]byte, error) { return [16]byte([]byte("0123456789abcdef")), nil }

func openWriter(t testing.TB, opts *queue.WriterOptions) *queue.Writer {
	w, err := queue.OpenWriter(queueDir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// settle waits until the writer's files have every entry added so far.
func settle(t testing.TB, w *queue.Writer) {
	require.NoError(t, w.Settle())
}

func openReader(t testing.TB, fsys vfs.FS) *queue.Reader {
	r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: fsys, PollInterval: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// item is an expected entry.
type item struct {
	id, document string
	deleted      bool
	expires      time.Time
	at           queue.Address
	next         queue.Position
}

// put appends an item to the queue and sets its address.
func (i *item) put(t testing.TB, w *queue.Writer) {
	var err error
	if i.deleted {
		i.at, err = w.Delete([]byte(i.id))
	} else {
		i.at, err = w.Put(queue.Record{ID: []byte(i.id), Document: []byte(i.document), Expires: i.expires})
	}
	require.NoError(t, err)
}

// posting returns a typical document: text that has much in common with the others.
func posting(n int) string {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	word := func(words ...string) string { return words[r.IntN(len(words))] }
	return fmt.Sprintf(`{"id":"job-%d","title":"%s %s","company":"%s","city":"%s","salary":%d,`+
		`"description":"We are looking for a %s to join our %s team. You bring %d years of experience with %s, %s and %s.",`+
		`"reference":"%016x"}`,
		n, word("Senior", "Junior", "Lead", "Principal"), word("engineer", "nurse", "driver", "welder", "teacher"),
		word("Acme", "Globex", "Initech", "Umbrella", "Hooli"), word("Austin", "Berlin", "Lyon", "Osaka", "Lima"),
		20000+r.IntN(90000), word("person", "colleague", "specialist"), word("growing", "small", "global"),
		1+r.IntN(9), word("Go", "forklifts", "children"), word("Rust", "trucks", "patients"), word("SQL", "steel", "French"),
		r.Uint64())
}

// scan returns all committed entries after a position.
func scan(t testing.TB, r *queue.Reader, from queue.Position) []item {
	items, err := tryScan(r, from)
	require.NoError(t, err)
	return items
}

func tryScan(r *queue.Reader, from queue.Position) ([]item, error) {
	var items []item
	err := r.Scan(context.Background(), from, func(e queue.Entry) error {
		items = append(items, item{id: string(e.ID), deleted: e.Deleted, expires: e.Expires, at: e.Address, next: e.Next})
		return nil
	})
	return items, err
}

// requireItems checks that the queue has exactly the items, by tailing and by fetching
// each.
func requireItems(t testing.TB, r *queue.Reader, want []item) {
	t.Helper()
	requireEntries(t, r, want)
	requireDocuments(t, r, want)
}

func requireEntries(t testing.TB, r *queue.Reader, want []item) {
	t.Helper()
	got := scan(t, r, queue.Position{})
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, w.id, got[i].id)
		require.Equal(t, w.at, got[i].at)
		require.Equal(t, w.deleted, got[i].deleted)
		require.True(t, w.expires.Equal(got[i].expires), "%v, want %v", got[i].expires, w.expires)
	}
}

func requireDocuments(t testing.TB, r *queue.Reader, want []item) {
	t.Helper()
	prefix := []byte("prefix")
	for _, w := range want {
		got, err := r.DocumentFor(prefix, []byte(w.id), w.at)
		if w.deleted {
			require.ErrorIs(t, err, queue.ErrDeleted)
			require.Equal(t, prefix, got)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "prefix"+w.document, string(got))
		got, err = r.Document(got[:0], w.at)
		require.NoError(t, err)
		require.Equal(t, w.document, string(got))
	}
}

func requireSound(t testing.TB, fsys vfs.FS) maintain.Report {
	t.Helper()
	report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: fsys})
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.Empty(t, report.Missing)
	return report
}

func TestRoundTrip(t *testing.T) {
	for _, codec := range codec.Names() {
		for _, blockBytes := range []int{1, 700, 20_000, 0} {
			t.Run(fmt.Sprintf("codec=%s/block=%d", codec, blockBytes), func(t *testing.T) {
				random := testseed.Rand(t)
				mem := newMem(t)
				opts := testOptions(mem)
				opts.Codec, opts.BlockBytes, opts.SegmentBytes, opts.DictionaryBytes = codec, blockBytes, 30_000, 1<<10
				w := openWriter(t, opts)
				r := openReader(t, mem)
				var items []item
				for i := range 300 {
					it := item{id: fmt.Sprint("id-", random.IntN(100)), document: posting(i)}
					switch random.IntN(20) {
					case 0:
						it.document, it.deleted = "", true
					case 1:
						it.document = ""
					case 2:
						it.document = string(randomBytes(random, random.IntN(3000)))
					case 3:
						it.expires = testStart.Add(time.Duration(i) * time.Hour).Truncate(time.Second)
					case 4:
						it.document = string(bytes.Repeat([]byte("abc"), random.IntN(10_000)))
					}
					it.put(t, w)
					items = append(items, it)
					switch random.IntN(40) {
					case 0:
						require.NoError(t, w.Flush())
						requireEntries(t, r, items)
						requireDocuments(t, r, items[max(0, len(items)-20):])
					case 1:
						require.NoError(t, w.Seal())
						requireEntries(t, r, items)
					}
				}
				require.NoError(t, w.Close())
				requireItems(t, r, items)
				report := requireSound(t, mem)
				assert.EqualValues(t, len(items), report.Entries)
				assert.Equal(t, scan(t, r, queue.Position{})[len(items)-1].next, r.End())
			})
		}
	}
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// TestOnDisk uses the file system of the machine.
func TestOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "queue")
	w, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	at, err := w.Append([]byte("id"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Flush())

	_, err = queue.OpenWriter(dir, nil)
	require.ErrorIs(t, err, queue.ErrLocked)
	assert.ErrorContains(t, err, fmt.Sprintf("process %d on ", os.Getpid()))

	r, err := queue.OpenReader(dir, nil)
	require.NoError(t, err)
	got, err := r.Document(nil, at)
	require.NoError(t, err)
	assert.Equal(t, "document", string(got))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	got, err = r.Document(nil, at)
	require.NoError(t, err)
	assert.Equal(t, "document", string(got))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())

	names, err := vfs.OS.List(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{queue.HeadName, "0000000001.seg", segment.LockName}, names)

	_, err = queue.OpenReader(filepath.Join(dir, "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = w.Append([]byte("id"), nil)
	require.ErrorIs(t, err, queue.ErrClosed)
	require.ErrorIs(t, w.Flush(), queue.ErrClosed)
	_, err = r.Document(nil, at)
	require.ErrorIs(t, err, queue.ErrClosed)
	require.ErrorIs(t, r.Tail(context.Background(), queue.Position{}, nil), queue.ErrClosed)
	_, err = r.Segments()
	require.ErrorIs(t, err, queue.ErrClosed)
}

func crcOf(b []byte) uint32 { return checksum.Update(0, b) }
