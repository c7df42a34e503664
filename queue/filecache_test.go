package queue_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// requireCache checks the cache of a reader without fetches, and returns the number of files.
func requireCache(t testing.TB, r *queue.Reader) int {
	t.Helper()
	files, err := r.Files().Check()
	require.NoError(t, err)
	return files
}

// TestRewriteIsOpenOnce: the cache has one file for a rewrite of many segments.
func TestRewriteIsOpenOnce(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	var live []queuetest.Item
	for i := range 100 {
		(&queuetest.Item{ID: "overwritten", Document: queuetest.Posting(i)}).Put(t, w)
		(&queuetest.Item{ID: "overwritten", Document: queuetest.Posting(i)}).Put(t, w)
		it := queuetest.Item{ID: fmt.Sprint(i), Document: "x"}
		it.Put(t, w)
		live = append(live, it)
		require.NoError(t, w.Seal())
	}
	_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, DeleteOriginals: true})
	require.NoError(t, err)
	r := queuetest.OpenReader(t, mem)
	queuetest.RequireDocuments(t, r, live)
	require.Equal(t, 2, requireCache(t, r), "a rewrite and the last segment")
}

// TestMissingSegmentIsCheap: repeated fetches of a document in a missing segment do not
// list the directory each time. The document is found as soon as the segment arrives.
func TestMissingSegmentIsCheap(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		files, items := queuetest.SmallQueue(t, "none", true)
		name := filepath.Base(segment.Path("", items[0].At.Segment, segment.SealedSuffix))
		content := files[name]
		delete(files, name)
		mem, lists := queuetest.MemWith(t, files), 0
		r := queuetest.OpenReader(t, vfs.NewFault(mem, func(op vfs.Op) error {
			if op.Kind == vfs.OpList {
				lists++
			}
			return nil
		}))
		time.Sleep(time.Second)
		for range 1000 {
			_, err := r.DocumentFor(nil, []byte(items[0].ID), items[0].At)
			require.ErrorIs(t, err, queue.ErrUnavailable)
		}
		require.Equal(t, 1, lists)
		require.NoError(t, vfs.WriteFileAtomic(mem, segment.Path(queuetest.Dir, items[0].At.Segment, segment.SealedSuffix), content))
		queuetest.RequireDocuments(t, r, items[:1])
	})
}

// TestFetchWorkDoesNotGrowWithSegments: a fetch from a file that was used before makes no
// file operation, and one from another file lists no directory, however many segments there
// are.
func TestFetchWorkDoesNotGrowWithSegments(t *testing.T) {
	const segments = 2_000
	mem := queuetest.NewMem(t)
	w, err := queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{FS: mem, Codec: "none"})
	require.NoError(t, err)
	addresses := make([]queue.Address, segments)
	for i := range addresses {
		addresses[i], err = w.Append(fmt.Append(nil, i), []byte("document"))
		require.NoError(t, err)
		require.NoError(t, w.Seal())
	}
	require.NoError(t, w.Close())
	operations := map[vfs.OpKind]int{}
	r := queuetest.OpenReader(t, vfs.NewFault(mem, func(op vfs.Op) error {
		operations[op.Kind]++
		return nil
	}))
	fetchAll := func() {
		for i, at := range addresses {
			_, err := r.DocumentFor(nil, fmt.Append(nil, i), at)
			require.NoError(t, err)
		}
	}
	fetchAll()
	require.LessOrEqual(t, operations[vfs.OpList], 2)
	require.LessOrEqual(t, operations[vfs.OpOpen], segments)
	require.LessOrEqual(t, operations[vfs.OpReadAt], 10*segments)
	clear(operations)
	fetchAll()
	require.Empty(t, operations)
}

// BenchmarkFetchManySegments fetches 20,000 documents of 4 KiB, one per block, in random
// order from mapped files, from different numbers of segments. 20,000 segments exceed the
// cache.
func BenchmarkFetchManySegments(b *testing.B) {
	const documents = 20_000
	for _, segments := range []int{1_000, 10_000, 20_000} {
		b.Run(fmt.Sprintf("segments=%d", segments), func(b *testing.B) {
			mem := queuetest.NewMem(b)
			opts := queuetest.Options(mem)
			opts.BlockBytes = 1
			w := queuetest.OpenWriter(b, opts)
			items := make([]queuetest.Item, documents)
			for i := range items {
				items[i] = queuetest.Item{ID: fmt.Sprint(i), Document: fmt.Sprintf("%4096d", i)}
				items[i].Put(b, w)
				if (i+1)%(documents/segments) == 0 {
					require.NoError(b, w.Seal())
				}
			}
			dir := b.TempDir()
			names, err := mem.List(queuetest.Dir)
			require.NoError(b, err)
			for _, name := range names {
				content, err := vfs.ReadFile(mem, filepath.Join(queuetest.Dir, name))
				require.NoError(b, err)
				require.NoError(b, os.WriteFile(filepath.Join(dir, name), content, 0o666))
			}
			r, err := queue.OpenReader(dir, nil)
			require.NoError(b, err)
			defer r.Close()
			queuetest.RequireDocuments(b, r, items)
			dst := make([]byte, 0, 8<<10)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				it := &items[n*7919%documents]
				if dst, err = r.Document(dst[:0], it.At); err != nil || string(dst) != it.Document {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(requireCache(b, r)), "files")
		})
	}
}
