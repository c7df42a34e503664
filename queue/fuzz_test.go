package queue_test

import (
	"context"
	"errors"
	"testing"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// FuzzSegment reads arbitrary bytes as a segment. A delivered document can be fetched or
// is unavailable, twice with the same result; if a check finds no damage, there is none;
// and a writer refuses the file or continues after the entries that readers see.
func FuzzSegment(f *testing.F) {
	for _, codec := range codec.Names() {
		files, _ := queuetest.SmallQueue(f, codec, true)
		f.Add(files["0000000001.seg"], true, true)
		f.Add(files["0000000001.seg"], false, false)
		f.Add(files["0000000001.seg"][:500], true, false)
	}
	f.Fuzz(func(t *testing.T, content []byte, sealed, mended bool) {
		if mended {
			content = queuetest.FixChecksums(content)
		}
		name := "0000000001.open"
		if sealed {
			name = "0000000001.seg"
		}
		mem := queuetest.MemWith(t, map[string][]byte{name: content})
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		entries, scanErr := queuetest.TryScan(r, queue.Position{})
		again, _ := queuetest.TryScan(r, queue.Position{})
		require.Equal(t, entries, again)
		report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem, Decode: true})
		require.True(t, err == nil || errors.Is(err, queue.ErrNewerVersion), "%v", err)
		whole := err == nil && len(report.Damage) == 0
		for _, e := range entries {
			_, err := r.DocumentFor(nil, []byte(e.ID), e.At)
			switch {
			case e.Deleted && !errors.Is(err, queue.ErrUnavailable):
				require.ErrorIs(t, err, queue.ErrDeleted)
			case err != nil && !e.Deleted:
				require.ErrorIs(t, err, queue.ErrUnavailable)
				if !errors.Is(err, queue.ErrUnknownCodec) { // Check skips these documents
					require.False(t, whole, "a check found nothing wrong: %v", err)
				}
			}
		}
		if whole && sealed {
			require.NoError(t, scanErr)
			require.EqualValues(t, len(entries), report.Entries)
		}
		_, err = r.Segments()
		require.NoError(t, err)
		if len(entries) > 0 && whole {
			require.Equal(t, entries[len(entries)-1].Next, r.End())
		}
		w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
		if err != nil {
			return
		}
		at, err := w.Append([]byte("id"), []byte("document"))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Greater(t, at.Segment, queue.SegmentID(1))
		if after, err := queuetest.TryScan(r, queue.Position{}); err == nil {
			require.GreaterOrEqual(t, len(after), len(entries)+1)
		}
	})
}
