package collection

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
	"docstore/internal/testseed"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/maintain"
)

// A comparison of a random queue, with compactions and in any number of passes, finds
// exactly the changes that were made to the index.
func TestCompareIndexModel(t *testing.T) {
	random := testseed.Rand(t)
	root := t.TempDir()
	queueDir, dir := filepath.Join(root, "queue"), filepath.Join(root, "index")
	now := time.Now()
	live := map[string]bool{}
	write := func(n int) {
		w, err := queue.OpenWriter(queueDir, &queue.WriterOptions{SegmentBytes: 4 << 10})
		require.NoError(t, err)
		for range n {
			id := fmt.Sprint("id-", random.IntN(80))
			r := queue.Record{ID: []byte(id), Document: []byte(documentOf(id)), Delete: random.IntN(4) == 0}
			if random.IntN(8) == 0 {
				r.Expires = now.Add(-time.Hour * time.Duration(random.IntN(3)))
			} else if random.IntN(8) == 0 {
				r.Expires = now.Add(time.Hour)
			}
			if r.Delete {
				r.Document, r.Expires = nil, time.Time{}
			}
			_, err := w.Put(r)
			require.NoError(t, err)
			live[id] = !r.Delete && (r.Expires.IsZero() || r.Expires.After(now))
		}
		require.NoError(t, w.Close())
		if random.IntN(2) == 0 {
			_, err := maintain.Compact(t.Context(), queueDir, nil)
			require.NoError(t, err)
		}
	}
	index := func() {
		c, err := Open("jobs", queueDir, dir, nil)
		require.NoError(t, err)
		require.NoError(t, c.WaitReady(soon(t)))
		require.NoError(t, c.Close())
	}
	compare := func() Comparison {
		var last, of int64
		result, err := CompareIndex(t.Context(), dir, queueDir, now, int64(1+random.IntN(20_000)), func(done, total int64) {
			require.GreaterOrEqual(t, done, last)
			last, of = done, total
		})
		require.NoError(t, err)
		require.Equal(t, of, last, "it ends with everything done")
		return result
	}
	write(1 + random.IntN(300))
	index()
	count := func() (n int64) {
		for _, is := range live {
			if is {
				n++
			}
		}
		return n
	}
	require.Zero(t, compare().Differences(), "%+v", compare())
	require.GreaterOrEqual(t, compare().Equal, count(), "expired documents may be in both")
	write(1 + random.IntN(100))
	require.Zero(t, compare().Differences(), "the index is behind")
	index()
	after := compare()
	require.Zero(t, after.Differences(), "%+v", after)
	require.Zero(t, after.Later)

	db, err := lsm.Open(firstIndex.path(dir), nil)
	require.NoError(t, err)
	var missing, wrong, extra int64
	var other []byte // an entry of a live document
	for id, is := range live {
		if is {
			other, err = db.Get(nil, []byte(id))
			require.NoError(t, err)
		}
	}
	for id, is := range live {
		switch value, err := db.Get(nil, []byte(id)); {
		case random.IntN(4) > 0:
		case is && random.IntN(2) == 0:
			require.NoError(t, db.Delete([]byte(id)))
			missing++
		case is:
			require.NoError(t, err)
			value[random.IntN(10)] ^= 1
			require.NoError(t, db.Set([]byte(id), value))
			wrong++
		}
	}
	for i := range random.IntN(5) {
		if other != nil {
			require.NoError(t, db.Set([]byte(fmt.Sprint("extra-", i)), other))
			extra++
		}
	}
	require.NoError(t, db.Close())
	result := compare()
	require.Equal(t, []int64{missing, wrong, extra}, []int64{result.Missing, result.Wrong, result.Extra})
	require.Len(t, result.Examples, int(min(maxComparisonExamples, result.Differences())))
}

// An erasure can replace the dictionary of a segment and encode its documents again. They are
// the same documents for a comparison.
func TestCompareIndexAfterRecoding(t *testing.T) {
	f, _ := compressedFixture(t, "zstd")
	c := f.ready()
	sizes := func() map[queue.Address]int {
		sizes := map[queue.Address]int{}
		r, err := queue.OpenReader(f.queueDir, &queue.ReaderOptions{FS: f.fs})
		require.NoError(t, err)
		require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
			sizes[e.Address] = e.StoredBytes
			return nil
		}))
		require.NoError(t, r.Close())
		return sizes
	}
	before := sizes()
	var last queue.Address
	for n := range compressedDocuments / 2 { // samples of the dictionary
		var err error
		last, err = f.queueWriter().Delete([]byte(jobs.ID(n + 1)))
		require.NoError(t, err)
	}
	f.seal()
	require.NoError(t, c.WaitFor(soon(t), last))
	f.clock.advance(time.Hour)
	_, err := maintain.Compact(t.Context(), f.queueDir, &maintain.CompactOptions{FS: f.fs, EraseDead: true, DeleteOriginals: true, Now: f.clock.Now})
	require.NoError(t, err)
	recoded := 0
	for address, size := range sizes() {
		if was, ok := before[address]; ok && was != size {
			recoded++
		}
	}
	require.Positive(t, recoded)
	result, err := compareIndex(t.Context(), f.fs, f.dir, f.queueDir, f.clock.Now(), CompareMemory, nil)
	require.NoError(t, err)
	require.Zero(t, result.Differences(), result.Examples)
}
