package publish

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"
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
		live.Start(t.Context(), func() { t.Error("fenced") })
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

// TestFencedLiveStops: the queue of a host that seemed to be lost is restored and continued on
// another one, and the first host returns. It stops, and does not take the collection back.
func TestFencedLiveStops(t *testing.T) {
	encoder().EncodeAll([]byte("{}"), nil) // makes channels, which a bubble must not own
	for _, announce := range []bool{true, false} {
		virtualtime.Test(t, func(t *testing.T) {
			b, err := bucket.OpenDir(vfs.NewMem(), "bucket")
			require.NoError(t, err)
			log, err := OpenLog(t.Context(), b, time.Now)
			require.NoError(t, err)
			first := startUpdater(t, b, vfs.NewMem(), announce)
			first.put(t, "a")

			fsys := vfs.NewMem()
			m, _, err := FindManifest(t.Context(), b, 0, time.Now)
			require.NoError(t, err)
			require.NoError(t, Restore(t.Context(), b, m, "queue", &Options{FS: fsys}))
			second := startUpdater(t, b, fsys, announce)
			second.put(t, "b")
			before, err := log.Load(t.Context())
			require.NoError(t, err)
			for range 10 {
				first.put(t, "c")
				time.Sleep(liveInterval)
			}
			after, err := log.Load(t.Context())
			require.NoError(t, err)
			require.Equal(t, before.Epoch, after.Epoch, "the publisher is the same")
			require.EqualValues(t, 1, first.fenced.Load())

			second.put(t, "d")
			require.Greater(t, second.live.State().Published, after.Head.Number)
			require.NoError(t, second.stop(t))
			require.Zero(t, second.fenced.Load())
			err = first.stop(t)
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorContains(t, err, "stop the other updater")
		})
	}
}

// updater writes and publishes a queue.
type updater struct {
	writer *queue.Writer
	live   *Live
	fenced atomic.Int64
}

func startUpdater(t *testing.T, b bucket.Bucket, fsys vfs.FS, announce bool) *updater {
	u := &updater{}
	var err error
	u.writer, err = queue.OpenWriter("queue", &queue.WriterOptions{FS: fsys})
	require.NoError(t, err)
	u.live, err = NewLive(t.Context(), b, "queue", LiveOptions{
		FS: fsys, URL: "file:///bucket", Announce: announce, Seal: u.writer.Seal, Logger: slog.New(slog.DiscardHandler),
		Counts: func() Counts { return Counts{Documents: 1} },
	})
	require.NoError(t, err)
	u.live.Start(t.Context(), func() { u.fenced.Add(1) })
	return u
}

// put appends a document in a segment, and waits until it would be published.
func (u *updater) put(t *testing.T, id string) {
	_, err := u.writer.Put(queue.Record{ID: []byte(id), Document: []byte("{}")})
	require.NoError(t, err)
	require.NoError(t, u.writer.Seal())
	time.Sleep(3 * liveInterval)
}

func (u *updater) stop(t *testing.T) error {
	u.live.Stop()
	require.NoError(t, u.writer.Close())
	return u.live.Finish(t.Context())
}

// TestLiveAfterACompaction: compact has left out an entry because of one in a segment that is open when
// an updater starts to publish. It is sealed, and published with the rewrite.
func TestLiveAfterACompaction(t *testing.T) {
	encoder().EncodeAll([]byte("{}"), nil) // makes channels, which a bubble must not own
	virtualtime.Test(t, func(t *testing.T) {
		b, err := bucket.OpenDir(vfs.NewMem(), "bucket")
		require.NoError(t, err)
		fsys := vfs.NewMem()
		w, err := queue.OpenWriter("queue", &queue.WriterOptions{FS: fsys})
		require.NoError(t, err)
		put := func(id string) {
			_, err := w.Put(queue.Record{ID: []byte(id), Document: []byte("{}")})
			require.NoError(t, err)
			require.NoError(t, w.Flush())
		}
		put("a")
		put("b")
		require.NoError(t, w.Seal())
		put("a")
		compacted, err := maintain.Compact(t.Context(), "queue", &maintain.CompactOptions{FS: fsys, MaxDead: 0.1})
		require.NoError(t, err)
		require.NotZero(t, compacted.Rewrites)
		live, err := NewLive(t.Context(), b, "queue", LiveOptions{
			FS: fsys, Seal: w.Seal, Logger: slog.New(slog.NewTextHandler(failOnWrite{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Counts: func() Counts { return Counts{Documents: 3} },
		})
		require.NoError(t, err)
		live.Start(t.Context(), func() { t.Error("fenced") })
		time.Sleep(3 * liveInterval)
		require.EqualValues(t, 1, live.State().Published)
		m, _, err := FindManifest(t.Context(), b, 1, time.Now)
		require.NoError(t, err)
		require.EqualValues(t, 2, m.Documents())
		live.Stop()
		require.NoError(t, w.Close())
		require.NoError(t, live.Finish(t.Context()))
	})
}

// failOnWrite fails the test when something is written to it.
type failOnWrite struct{ t *testing.T }

func (f failOnWrite) Write(p []byte) (int, error) {
	f.t.Errorf("logged: %s", p)
	return len(p), nil
}

// TestOlderCopyDoesNotTakeOver: a queue that lacks a manifest, or a document that an increment has
// announced, is refused before its publisher fences that of the newer queue.
func TestOlderCopyDoesNotTakeOver(t *testing.T) {
	encoder().EncodeAll([]byte("{}"), nil) // makes channels, which a bubble must not own
	for name, seal := range map[string]bool{"manifest": true, "increment": false} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				b, err := bucket.OpenDir(vfs.NewMem(), "bucket")
				require.NoError(t, err)
				log, err := OpenLog(t.Context(), b, time.Now)
				require.NoError(t, err)
				fsys := vfs.NewMem()
				u := startUpdater(t, b, fsys, true)
				u.put(t, "a")
				older := fsys.CrashClone(vfs.KeepAll)

				_, err = u.writer.Put(queue.Record{ID: []byte("b"), Document: []byte("{}")})
				require.NoError(t, err)
				require.NoError(t, u.writer.Flush())
				if seal {
					require.NoError(t, u.writer.Seal())
				}
				time.Sleep(3 * liveInterval)
				before, err := log.Load(t.Context())
				require.NoError(t, err)
				_, err = OpenPublisher(t.Context(), b, "queue", &Options{FS: older, Stream: true})
				require.ErrorIs(t, err, ErrRefused)
				require.ErrorContains(t, err, "older copy")
				after, err := log.Load(t.Context())
				require.NoError(t, err)
				require.Equal(t, before.Epoch, after.Epoch)
				require.NoError(t, u.stop(t))
				require.Zero(t, u.fenced.Load())
			})
		})
	}
}
