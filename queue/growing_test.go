package queue_test

import (
	"io/fs"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// TestGrowingSegmentEndsAtCommitMarks follows a segment until it is sealed.
func TestGrowingSegmentEndsAtCommitMarks(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("queue"))
	_, err := queue.OpenGrowing(fsys, "queue", 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
	w, err := queue.OpenWriter("queue", &queue.WriterOptions{FS: fsys, Codec: "none"})
	require.NoError(t, err)
	put := func() {
		_, err := w.Append([]byte("id"), make([]byte, 100))
		require.NoError(t, err)
	}
	put()
	require.NoError(t, w.Flush())
	g, err := queue.OpenGrowing(fsys, "queue", 1)
	require.NoError(t, err)
	defer g.Close()
	advance := func(limit int64) (int64, bool) {
		end, sealed, err := g.Advance(limit)
		require.NoError(t, err)
		return end, sealed
	}
	first, sealed := advance(1) // within the header
	require.False(t, sealed)
	info, err := fsys.Stat("queue/" + queue.OpenSegmentName(1))
	require.NoError(t, err)
	require.Equal(t, info.Size, first, "the mark is included")

	put()
	require.NoError(t, w.Flush())
	put()
	require.NoError(t, w.Flush())
	second, _ := advance(first + 1)
	require.Greater(t, second, first)
	require.NoError(t, w.Seal())
	third, sealed := advance(second + 1)
	require.Greater(t, third, second)
	require.False(t, sealed, "the limit is reached before the footer")
	end, sealed := advance(queue.MaxSegmentBytes)
	require.True(t, sealed)
	info, err = fsys.Stat("queue/0000000001.seg")
	require.NoError(t, err)
	require.Equal(t, info.Size, end)
	again, sealed := advance(queue.MaxSegmentBytes)
	require.True(t, sealed)
	require.Equal(t, end, again)
	require.NoError(t, w.Close())
}

// TestGrowingSegmentReportsDamage before a commit mark, and not after the last one.
func TestGrowingSegmentReportsDamage(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("queue"))
	w, err := queue.OpenWriter("queue", &queue.WriterOptions{FS: fsys, Codec: "none"})
	require.NoError(t, err)
	for range 2 {
		_, err := w.Append([]byte("id"), make([]byte, 100))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
	}
	defer func() { _ = w.Close() }() // its file is damaged
	file, err := fsys.OpenAppend("queue/" + queue.OpenSegmentName(1))
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Write([]byte("torn"))
	require.NoError(t, err)
	g, err := queue.OpenGrowing(fsys, "queue", 1)
	require.NoError(t, err)
	end, _, err := g.Advance(queue.MaxSegmentBytes)
	require.NoError(t, err)
	info, err := file.Stat()
	require.NoError(t, err)
	require.Equal(t, info.Size-4, end)
	require.NoError(t, g.Close())

	_, err = file.WriteAt([]byte{0xff}, segment.HeaderBytes+5)
	require.NoError(t, err)
	g, err = queue.OpenGrowing(fsys, "queue", 1)
	require.NoError(t, err)
	defer g.Close()
	_, _, err = g.Advance(queue.MaxSegmentBytes)
	require.ErrorIs(t, err, queue.ErrCorrupt)
}
