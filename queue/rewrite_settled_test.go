package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// TestRewrites: Tail reports each rewrite before it reads it, and Rewrites describes those in
// the directory.
func TestRewrites(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	for n := range 3 {
		for _, id := range []string{"overwritten", fmt.Sprint("kept-", n)} {
			_, err := w.Append([]byte(id), []byte("document"))
			require.NoError(t, err)
		}
		require.NoError(t, w.Seal())
	}
	var after []queue.Position // each entry
	require.NoError(t, queuetest.OpenReader(t, mem).Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		after = append(after, e.Next)
		return nil
	}))
	_, err := maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	end := after[len(after)-1]
	want := []queue.Rewrite{{First: 1, Last: 2, Generation: 1, Settled: queue.Position{Queue: end.Queue, Next: end.Next}}}

	var entered []queue.Address
	done := errors.New("done")
	tail := func(from queue.Position) error {
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem, OnRewrite: func(r queue.Rewrite, at queue.Address) error {
			require.Equal(t, want[0], r)
			entered = append(entered, at)
			return nil
		}})
		require.NoError(t, err)
		defer r.Close()
		return r.Tail(context.Background(), from, func(queue.Entry) error { return done })
	}
	for _, from := range []queue.Position{{}, after[0], after[3]} {
		require.ErrorIs(t, tail(from), done)
	}
	require.Equal(t, []queue.Address{{Segment: 1}, after[0].Next, after[3].Next}, entered)

	r := queuetest.OpenReader(t, mem)
	for range 2 {
		rewrites, err := r.Rewrites()
		require.NoError(t, err)
		require.Equal(t, want, rewrites)
	}
	path := queuetest.Dir + "/0000000001-0000000002.0001.seg"
	content, err := vfs.ReadFile(mem, path)
	require.NoError(t, err)
	require.NoError(t, mem.Rename(path, path+queue.QuarantineSuffix))
	rewrites, err := r.Rewrites()
	require.NoError(t, err)
	require.Equal(t, want, rewrites, "quarantined")
	require.NoError(t, vfs.WriteFileAtomic(mem, path+queue.QuarantineSuffix, content[:len(content)/2]))
	rewrites, err = r.Rewrites()
	require.NoError(t, err)
	require.Equal(t, []queue.Rewrite{{First: 1, Last: 2, Generation: 1}}, rewrites, "damaged")
	require.NoError(t, r.Close())
	_, err = r.Rewrites()
	require.ErrorIs(t, err, queue.ErrClosed)
}
