package queue_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var updateFlag = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settle waits until the writer's files have every entry added so far.
func settle(t testing.TB, w *queue.Writer) {
	require.NoError(t, w.Settle())
}

func TestRoundTrip(t *testing.T) {
	for _, codec := range codec.Names() {
		for _, blockBytes := range []int{1, 700, 20_000, 0} {
			t.Run(fmt.Sprintf("codec=%s/block=%d", codec, blockBytes), func(t *testing.T) {
				random := testseed.Rand(t)
				mem := queuetest.NewMem(t)
				opts := queuetest.Options(mem)
				opts.Codec, opts.BlockBytes, opts.SegmentBytes, opts.DictionaryBytes = codec, blockBytes, 30_000, 1<<10
				w := queuetest.OpenWriter(t, opts)
				r := queuetest.OpenReader(t, mem)
				var items []queuetest.Item
				for i := range 300 {
					it := queuetest.Item{ID: fmt.Sprint("id-", random.IntN(100)), Document: queuetest.Posting(i)}
					switch random.IntN(20) {
					case 0:
						it.Document, it.Deleted = "", true
					case 1:
						it.Document = ""
					case 2:
						it.Document = string(queuetest.RandomBytes(random, random.IntN(3000)))
					case 3:
						it.Expires = queuetest.Start.Add(time.Duration(i) * time.Hour).Truncate(time.Second)
					case 4:
						it.Document = string(bytes.Repeat([]byte("abc"), random.IntN(10_000)))
					}
					it.Put(t, w)
					items = append(items, it)
					switch random.IntN(40) {
					case 0:
						require.NoError(t, w.Flush())
						queuetest.RequireEntries(t, r, items)
						queuetest.RequireDocuments(t, r, items[max(0, len(items)-20):])
					case 1:
						require.NoError(t, w.Seal())
						queuetest.RequireEntries(t, r, items)
					}
				}
				require.NoError(t, w.Close())
				queuetest.RequireItems(t, r, items)
				report := queuetest.RequireSound(t, mem)
				assert.EqualValues(t, len(items), report.Entries)
				assert.Equal(t, queuetest.Scan(t, r, queue.Position{})[len(items)-1].Next, r.End())
			})
		}
	}
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
