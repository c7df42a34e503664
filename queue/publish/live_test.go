package publish

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/bucket"
)

// TestSegmentsAreSealedForAManifest: those of all shards, and that of one queue when the publisher
// was opened, because increments may have announced a part of it.
func TestSegmentsAreSealedForAManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	w, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	_, err = w.Put(queue.Record{ID: []byte("a"), Document: []byte("{}")})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for _, test := range []struct {
		shards           int
		announce, opened bool
		sealed           bool
	}{{1, true, true, true}, {1, true, false, false}, {1, false, true, false}, {4, true, false, true}, {4, false, false, true}} {
		seals := 0
		p := &Live{dir: dir, options: LiveOptions{FS: vfs.OS, Announce: test.announce, Seal: func() error { seals++; return nil }}}
		_, err := p.sealAll(make([]queue.SegmentID, test.shards), test.opened)
		require.NoError(t, err)
		require.Equal(t, test.sealed, seals == 1, "%+v", test)
	}
}

// TestLiveOnGivenFS publishes and announces a queue that is not on the disk of the process.
func TestLiveOnGivenFS(t *testing.T) {
	encoder().EncodeAll([]byte("{}"), nil) // makes channels, which a bubble must not own
	virtualtime.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		b, err := bucket.OpenDir(vfs.NewMem(), "bucket")
		require.NoError(t, err)
		w, err := queue.OpenWriter("queue", &queue.WriterOptions{FS: fsys})
		require.NoError(t, err)
		log, err := OpenLog(t.Context(), b, time.Now)
		require.NoError(t, err)
		live, err := NewLive(t.Context(), b, "queue", LiveOptions{
			FS: fsys, Announce: true, Seal: w.Seal, Logger: slog.New(slog.DiscardHandler),
			Counts: func() Counts { return Counts{Documents: 2} },
		})
		require.NoError(t, err)
		live.Start(t.Context())
		for _, id := range []string{"a", "b"} {
			_, err = w.Put(queue.Record{ID: []byte(id), Document: []byte("{}")})
			require.NoError(t, err)
			require.NoError(t, w.Flush())
			time.Sleep(3 * liveInterval)
		}
		record, err := log.Load(t.Context())
		require.NoError(t, err)
		require.NotZero(t, record.Announced.Number)
		newest, err := NewestIncrement(t.Context(), b, record.Announced)
		require.NoError(t, err)
		require.NotZero(t, newest, "the second document")
		live.Stop()
		require.NoError(t, w.Close())
		require.NoError(t, live.Finish(t.Context()))

		_, ref, err := FindManifest(t.Context(), b, live.State().Announced, time.Now)
		require.NoError(t, err)
		m, err := ReadManifest(t.Context(), b, ref)
		require.NoError(t, err)
		restored := vfs.NewMem()
		require.NoError(t, Restore(t.Context(), b, m, "copy", &Options{FS: restored}))
		r, err := queue.OpenReader("copy", &queue.ReaderOptions{FS: restored})
		require.NoError(t, err)
		defer r.Close()
		documents := 0
		err = r.Scan(t.Context(), queue.Position{}, func(queue.Entry) error { documents++; return nil })
		require.NoError(t, err)
		require.Equal(t, 2, documents)

		other, err := queue.OpenWriter("other", &queue.WriterOptions{FS: fsys})
		require.NoError(t, err)
		require.NoError(t, other.Close())
		_, err = NewLive(t.Context(), b, "other", LiveOptions{FS: fsys})
		require.ErrorIs(t, err, ErrRefused, "the bucket has another queue")
	})
}
