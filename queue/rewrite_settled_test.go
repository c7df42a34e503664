package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"docstore/internal/vfs"

	"github.com/stretchr/testify/require"
)

// TestRewrites: Tail reports each rewrite before it reads it, and Rewrites describes those in
// the directory.
func TestRewrites(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	for n := range 3 {
		for _, id := range []string{"overwritten", fmt.Sprint("kept-", n)} {
			_, err := w.Append([]byte(id), []byte("document"))
			require.NoError(t, err)
		}
		require.NoError(t, w.Seal())
	}
	var after []Position // each entry
	require.NoError(t, openReader(t, mem).Scan(t.Context(), Position{}, func(e Entry) error {
		after = append(after, e.Next)
		return nil
	}))
	_, err := Compact(t.Context(), queueDir, &CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	end := after[len(after)-1]
	want := []Rewrite{{First: 1, Last: 2, Generation: 1, Settled: Position{Queue: end.Queue, Next: end.Next}}}

	var entered []Address
	done := errors.New("done")
	tail := func(from Position) error {
		r, err := OpenReader(queueDir, &ReaderOptions{FS: mem, OnRewrite: func(r Rewrite, at Address) error {
			require.Equal(t, want[0], r)
			entered = append(entered, at)
			return nil
		}})
		require.NoError(t, err)
		defer r.Close()
		return r.Tail(context.Background(), from, func(Entry) error { return done })
	}
	for _, from := range []Position{{}, after[0], after[3]} {
		require.ErrorIs(t, tail(from), done)
	}
	require.Equal(t, []Address{{Segment: 1}, after[0].Next, after[3].Next}, entered)

	r := openReader(t, mem)
	for range 2 {
		rewrites, err := r.Rewrites()
		require.NoError(t, err)
		require.Equal(t, want, rewrites)
	}
	path := queueDir + "/0000000001-0000000002.0001.seg"
	content, err := vfs.ReadFile(mem, path)
	require.NoError(t, err)
	require.NoError(t, mem.Rename(path, path+QuarantineSuffix))
	rewrites, err := r.Rewrites()
	require.NoError(t, err)
	require.Equal(t, want, rewrites, "quarantined")
	require.NoError(t, vfs.WriteFileAtomic(mem, path+QuarantineSuffix, content[:len(content)/2]))
	rewrites, err = r.Rewrites()
	require.NoError(t, err)
	require.Equal(t, []Rewrite{{First: 1, Last: 2, Generation: 1}}, rewrites, "damaged")
	require.NoError(t, r.Close())
	_, err = r.Rewrites()
	require.ErrorIs(t, err, ErrClosed)
}
