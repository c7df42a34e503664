package queue_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const groupDictionaryBytes = 4 << 10

// openGroup opens Writers of a group for queues in subdirectories of the same file system.
func openGroup(t *testing.T, mem *vfs.Mem, writers int, opts queue.WriterGroupOptions) (*queue.WriterGroup, []*queue.Writer) {
	opts.DictionaryBytes = groupDictionaryBytes
	g, err := queue.NewWriterGroup(&opts)
	require.NoError(t, err)
	var all []*queue.Writer
	for i := range writers {
		o := queuetest.Options(mem)
		o.Codec, o.Group, o.BlockBytes, o.SegmentBytes = "", g, 4<<10, 100<<10
		w, err := queue.OpenWriter(fmt.Sprintf("%s/%d", queuetest.Dir, i), o)
		require.NoError(t, err)
		all = append(all, w)
	}
	return g, all
}

func closeGroup(t *testing.T, g *queue.WriterGroup, writers []*queue.Writer) {
	for _, w := range writers {
		require.NoError(t, w.Close())
	}
	g.Close()
}

// TestWriterGroup: the queues of a group use one dictionary, also those of the next group,
// and have their entries.
func TestWriterGroup(t *testing.T) {
	mem := queuetest.NewMem(t)
	var mu sync.Mutex
	var saved [][]byte
	save := func(content []byte) {
		mu.Lock()
		defer mu.Unlock()
		saved = append(saved, bytes.Clone(content))
	}
	const queues = 8
	items := make([][]queuetest.Item, queues)
	for range 2 {
		opts := queue.WriterGroupOptions{SaveDictionary: save}
		if len(saved) > 0 {
			opts.Dictionary = saved[len(saved)-1]
		}
		g, writers := openGroup(t, mem, queues, opts)
		for n := range queues * 500 {
			it := queuetest.Item{ID: fmt.Sprint(n), Document: queuetest.Posting(n)}
			it.Put(t, writers[n%queues])
			items[n%queues] = append(items[n%queues], it)
			if n%100 == 0 { // or the test would be over before the training
				g.Trainer().Wait()
			}
		}
		closeGroup(t, g, writers)
	}
	require.Len(t, saved, 1, "no dictionary was trained, or another one although documents are alike")
	for i := range queues {
		r, err := queue.OpenReader(fmt.Sprintf("%s/%d", queuetest.Dir, i), &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		queuetest.RequireItems(t, r, items[i])
		infos, err := r.Segments()
		require.NoError(t, err)
		last := infos[len(infos)-1]
		require.Equal(t, codec.HashDictionary(saved[0]), last.Dictionary)
		require.Zero(t, sampledFor(t, mem, fmt.Sprintf("%s/%d", queuetest.Dir, i), last))
	}
}

// TestErasedDocumentInDictionaryOfGroup: a document that is erased from one queue is in the
// dictionary of the others. EraseDead replaces it in each of them.
func TestErasedDocumentInDictionaryOfGroup(t *testing.T) {
	mem := queuetest.NewMem(t)
	g, writers := openGroup(t, mem, 3, queue.WriterGroupOptions{})
	secret := strings.Repeat("the secret of one customer ", 4)
	for n := range 3000 {
		it := queuetest.Item{ID: fmt.Sprint(n), Document: queuetest.Posting(n) + secret}
		if n >= 2000 {
			it.Document = queuetest.Posting(n)
		}
		it.Put(t, writers[n%3])
		if n%100 == 0 {
			g.Trainer().Wait()
		}
	}
	for n := range 2000 { // all in the first queue: others have no dead documents
		if n%3 == 0 {
			(&queuetest.Item{ID: fmt.Sprint(n), Deleted: true}).Put(t, writers[0])
		}
	}
	closeGroup(t, g, writers)
	for i := range 3 {
		dir := fmt.Sprintf("%s/%d", queuetest.Dir, i)
		before, err := maintain.Compact(context.Background(), dir, &maintain.CompactOptions{
			FS: mem, EraseDead: true, DeleteOriginals: true, MaxDead: 1, DictionaryBytes: groupDictionaryBytes,
			Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
		})
		require.NoError(t, err)
		require.Positive(t, before.Rewrites, "queue %d", i)
		r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		infos, err := r.Segments()
		require.NoError(t, err)
		for _, info := range infos {
			require.True(t, info.Dictionary == codec.DictionaryHash{} || sampledFor(t, mem, dir, info) != segment.Run{}, "a shared dictionary is left")
		}
	}
}

// TestPendingBytesOfGroupAreBounded: the limit holds for all queues together.
func TestPendingBytesOfGroupAreBounded(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		mem := queuetest.NewMem(t)
		gated, _, open := gate(mem, vfs.OpWrite)
		g, err := queue.NewWriterGroup(nil)
		require.NoError(t, err)
		const queues = 8
		var writers []*queue.Writer
		for i := range queues {
			o := queuetest.Options(gated)
			o.Codec, o.Group = "s2", g
			w, err := queue.OpenWriter(fmt.Sprintf("%s/%d", queuetest.Dir, i), o)
			require.NoError(t, err)
			writers = append(writers, w)
		}
		document := []byte(strings.Repeat("x", 100_000))
		appended := 0
		finished := make(chan error, 1)
		const count = 3 * queue.MaxPendingBytes / 100_000
		go func() {
			for appended = 0; appended < count; appended++ {
				if _, err := writers[appended%queues].Append([]byte("id"), document); err != nil {
					finished <- err
					return
				}
			}
			finished <- nil
		}()
		synctest.Wait()
		bytes := appended * len(document)
		assert.LessOrEqual(t, bytes, queue.MaxPendingBytes+(queues+1)*queue.DefaultBlockBytes)
		assert.Greater(t, bytes, queue.MaxPendingBytes-2*queue.DefaultBlockBytes)
		open()
		require.NoError(t, <-finished)
		closeGroup(t, g, writers)
	})
}

func TestWriterGroupRefusesOtherCodec(t *testing.T) {
	_, err := queue.NewWriterGroup(&queue.WriterGroupOptions{Codec: "no such codec"})
	require.Error(t, err)
	_, err = queue.NewWriterGroup(&queue.WriterGroupOptions{Dictionary: make([]byte, codec.MaxDictionaryBytes+1)})
	require.ErrorIs(t, err, codec.ErrBadDictionary)
	g, err := queue.NewWriterGroup(nil)
	require.NoError(t, err)
	defer g.Close()
	_, err = queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{FS: queuetest.NewMem(t), Codec: "none", Group: g})
	require.ErrorContains(t, err, "Codec is none, and that of the Group s2")
}

// TestEnd: End is the address after the last flushed entry, also after the queue was opened
// again.
func TestEnd(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	require.Zero(t, w.End())
	_, err := w.Append([]byte("id"), []byte("document"))
	require.NoError(t, err)
	require.Zero(t, w.End())
	require.NoError(t, w.Flush())
	end := w.End()
	require.Equal(t, queue.SegmentID(1), end.Segment)
	require.NoError(t, w.Close())
	w = queuetest.OpenWriter(t, queuetest.Options(mem))
	require.Equal(t, end, w.End())
	_, err = w.Append([]byte("id"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Seal())
	require.Equal(t, 1, w.End().Compare(end))
}

// sampledFor returns the segments that the dictionary of a segment was trained from.
func sampledFor(t *testing.T, fsys vfs.FS, dir string, info queue.SegmentInfo) segment.Run {
	l, err := segment.List(fsys, dir)
	require.NoError(t, err)
	s, err := l.OpenWhole(fsys, dir, info.ID)
	require.NoError(t, err)
	defer s.Close()
	return s.Header.Sampled
}
