// Package queuetest has what the tests of queue and of queue/maintain share: it writes small
// queues, damages them, and compares readers with the expected entries.
package queuetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// Dir is the directory of the queues on vfs.Mem.
const Dir = "/queue"

// NewMem returns a file system with an empty directory Dir.
func NewMem(t testing.TB) *vfs.Mem {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll(Dir))
	require.NoError(t, mem.SyncDir("/"))
	return mem
}

// ID is the id of the queue in NewSource.
var ID = [16]byte([]byte("0123456789abcdef"))

// NewSource returns a file system with a queue in Dir that has no entries.
func NewSource(t testing.TB) *vfs.Mem {
	mem := NewMem(t)
	require.NoError(t, queue.WriteHead(mem, Dir, queue.Head{Queue: ID, Time: Start}))
	return mem
}

// Start is the time of Options.
var Start = time.UnixMilli(1_700_000_000_000)

// Options makes runs deterministic: the same entries in NewSource give the same files.
func Options(fsys vfs.FS) *queue.WriterOptions {
	return &queue.WriterOptions{FS: fsys, Codec: "none", Now: func() time.Time { return Start }}
}

// OpenWriter opens a writer of the queue in Dir until the test ends.
func OpenWriter(t testing.TB, opts *queue.WriterOptions) *queue.Writer {
	w, err := queue.OpenWriter(Dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() }) // the test may have closed it
	return w
}

// OpenReader opens a reader of the queue in Dir until the test ends.
func OpenReader(t testing.TB, fsys vfs.FS) *queue.Reader {
	r, err := queue.OpenReader(Dir, &queue.ReaderOptions{FS: fsys, PollInterval: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// Item is an expected entry.
type Item struct {
	ID, Document string
	Deleted      bool
	Expires      time.Time
	At           queue.Address
	Next         queue.Position // after the entry
}

// Put appends an item to the queue and sets its address.
func (i *Item) Put(t testing.TB, w *queue.Writer) {
	var err error
	if i.Deleted {
		i.At, err = w.Delete([]byte(i.ID))
	} else {
		i.At, err = w.Put(queue.Record{ID: []byte(i.ID), Document: []byte(i.Document), Expires: i.Expires})
	}
	require.NoError(t, err)
}

// Posting returns a typical document: text that has much in common with the others.
func Posting(n int) string {
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

// Scan returns all committed entries after a position.
func Scan(t testing.TB, r *queue.Reader, from queue.Position) []Item {
	items, err := TryScan(r, from)
	require.NoError(t, err)
	return items
}

// TryScan is Scan, and returns the entries before an error, too.
func TryScan(r *queue.Reader, from queue.Position) ([]Item, error) {
	var items []Item
	err := r.Scan(context.Background(), from, func(e queue.Entry) error {
		items = append(items, Item{ID: string(e.ID), Deleted: e.Deleted, Expires: e.Expires, At: e.Address, Next: e.Next})
		return nil
	})
	return items, err
}

// RequireItems checks that the queue has exactly the items, by tailing and by fetching
// each.
func RequireItems(t testing.TB, r *queue.Reader, want []Item) {
	t.Helper()
	RequireEntries(t, r, want)
	RequireDocuments(t, r, want)
}

// RequireEntries checks that the queue has exactly the items, by tailing.
func RequireEntries(t testing.TB, r *queue.Reader, want []Item) {
	t.Helper()
	got := Scan(t, r, queue.Position{})
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, w.ID, got[i].ID)
		require.Equal(t, w.At, got[i].At)
		require.Equal(t, w.Deleted, got[i].Deleted)
		require.True(t, w.Expires.Equal(got[i].Expires), "%v, want %v", got[i].Expires, w.Expires)
	}
}

// RequireDocuments fetches the document of each item.
func RequireDocuments(t testing.TB, r *queue.Reader, want []Item) {
	t.Helper()
	prefix := []byte("prefix")
	for _, w := range want {
		got, err := r.DocumentFor(prefix, []byte(w.ID), w.At)
		if w.Deleted {
			require.ErrorIs(t, err, queue.ErrDeleted)
			require.Equal(t, prefix, got)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "prefix"+w.Document, string(got))
		got, err = r.Document(got[:0], w.At)
		require.NoError(t, err)
		require.Equal(t, w.Document, string(got))
	}
}

// RequireSound checks that the queue in Dir is whole.
func RequireSound(t testing.TB, fsys vfs.FS) maintain.Report {
	t.Helper()
	report, err := maintain.Check(context.Background(), Dir, &maintain.CheckOptions{FS: fsys})
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.Empty(t, report.Missing)
	return report
}

// RandomBytes returns n bytes.
func RandomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// MemWith returns a file system with a queue of the files.
func MemWith(t testing.TB, files map[string][]byte) *vfs.Mem {
	mem := NewMem(t)
	for name, content := range files {
		require.NoError(t, vfs.WriteFileAtomic(mem, Dir+"/"+name, content))
	}
	return mem
}

// SourceWith returns a directory that a Writer has opened, with the files.
func SourceWith(t testing.TB, files map[string][]byte) *vfs.Mem {
	mem := MemWith(t, files)
	f, err := mem.Create(Dir + "/" + segment.LockName)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, mem.SyncDir(Dir))
	return mem
}

// RequireHead checks that the head file describes the directory.
func RequireHead(t *testing.T, mem *vfs.Mem) queue.Head {
	t.Helper()
	head, err := queue.ReadHead(mem, Dir)
	require.NoError(t, err)
	r, err := queue.OpenReader(Dir, &queue.ReaderOptions{FS: mem})
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	require.Equal(t, r.End(), head.End)
	l, err := segment.List(mem, Dir)
	require.NoError(t, err)
	require.Equal(t, l.Last(), head.Highest)
	if head.Sealed > 0 {
		s, err := l.OpenWhole(mem, Dir, head.Sealed)
		require.NoError(t, err)
		require.Equal(t, s.Digest(), segment.Digest(head.Digest))
		s.Close()
	}
	return head
}

// PlacesOf returns the places of all documents.
func PlacesOf(t testing.TB, r *queue.Reader) map[queue.Address]queue.Place {
	places := map[queue.Address]queue.Place{}
	require.NoError(t, r.Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
		require.Equal(t, e.Deleted, e.Place == queue.Place{})
		require.Equal(t, e.StoredBytes, e.Place.StoredBytes())
		places[e.Address] = e.Place
		return nil
	}))
	return places
}
