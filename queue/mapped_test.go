package queue_test

import (
	"os"
	"testing"
	"time"

	"docstore/internal/race"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// mappedQueue writes a sealed segment on the operating system's file system.
func mappedQueue(t testing.TB, codec string) (*queue.Reader, string, []queuetest.Item) {
	dir := t.TempDir()
	opts := queuetest.Options(vfs.OS)
	opts.Codec, opts.BlockBytes = codec, 64<<10
	w, err := queue.OpenWriter(dir, opts)
	require.NoError(t, err)
	var items []queuetest.Item
	for i := range 400 {
		it := queuetest.Item{ID: "id-" + string(rune('a'+i%26)), Document: queuetest.Posting(i)}
		it.Put(t, w)
		items = append(items, it)
	}
	require.NoError(t, w.Close())
	r, err := queue.OpenReader(dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r, segment.Path(dir, 1, segment.SealedSuffix), items
}

// TestMappedSegmentIsCut: access to a mapped file that was cut must not end the process
// with SIGBUS.
func TestMappedSegmentIsCut(t *testing.T) {
	r, path, items := mappedQueue(t, "s2")
	first, last := &items[0], &items[len(items)-1]
	for _, it := range []*queuetest.Item{first, last} {
		got, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		require.NoError(t, err)
		require.Equal(t, it.Document, string(got))
	}
	f := r.Files().Get(1)
	require.NotNil(t, f.Mapping, "a sealed segment is mapped")
	r.Files().Put(f)

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 4096))
	dst := []byte("before")
	got, err := r.DocumentFor(dst, []byte(last.ID), last.At)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.Equal(t, dst, got)

	// Written in place, as by rsync --inplace.
	require.NoError(t, os.WriteFile(path, content, 0o666))
	queuetest.RequireDocuments(t, r, items)
	f = r.Files().Get(1)
	require.NotNil(t, f.Mapping)
	r.Files().Put(f)
}

// TestMappedSegmentIsOverwritten: bytes that change in a mapping are detected after the
// copy.
func TestMappedSegmentIsOverwritten(t *testing.T) {
	r, path, items := mappedQueue(t, "none")
	queuetest.RequireDocuments(t, r, items)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for offset := segment.HeaderBytes; offset < len(content)-segment.FooterBytes; offset += 501 {
		_, err := f.WriteAt([]byte{^content[offset]}, int64(offset))
		require.NoError(t, err)
	}
	damaged := 0
	for _, it := range items {
		got, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		if err == nil {
			require.Equal(t, it.Document, string(got))
			continue
		}
		require.ErrorIs(t, err, queue.ErrUnavailable)
		damaged++
	}
	require.NotZero(t, damaged)
}

// TestSealedSegmentIsMapped: a segment that was first read while it was open is mapped
// after it is sealed.
func TestSealedSegmentIsMapped(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		mem := queuetest.NewMem(t)
		w := queuetest.OpenWriter(t, queuetest.Options(mem))
		it := queuetest.Item{ID: "id", Document: "document"}
		it.Put(t, w)
		require.NoError(t, w.Flush())
		r := queuetest.OpenReader(t, mem)
		queuetest.RequireDocuments(t, r, []queuetest.Item{it})
		open := r.Files().Get(1)
		require.Nil(t, open.Mapping, "an open segment is not mapped")
		r.Files().Put(open)

		require.NoError(t, w.Close())
		time.Sleep(time.Second) // the next check is due
		queuetest.RequireDocuments(t, r, []queuetest.Item{it})
		sealed := r.Files().Get(1)
		require.NotSame(t, open, sealed)
		require.NotNil(t, sealed.Mapping)
		r.Files().Put(sealed)
		require.Equal(t, 1, requireCache(t, r))
	})
}

func TestFetchAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector a sync.Pool drops items at random")
	}
	for _, codec := range []string{"none", "s2", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			r, _, items := mappedQueue(t, codec)
			it := &items[len(items)/2]
			id, dst := []byte(it.ID), make([]byte, 0, 4<<10)
			var err error
			require.Zero(t, testing.AllocsPerRun(100, func() { dst, err = r.DocumentFor(dst[:0], id, it.At) }))
			require.NoError(t, err)
			require.Equal(t, it.Document, string(dst))
		})
	}
}

func TestChecksumAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector a sync.Pool drops items at random")
	}
	id, stored := []byte("id"), []byte("stored")
	require.Zero(t, testing.AllocsPerRun(100, func() { segment.DocumentCRC(queue.Address{}, 6, id, stored) }))
}
