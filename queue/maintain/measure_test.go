package maintain_test

import (
	"fmt"
	"testing"
	"time"

	"docstore/internal/canary"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// TestUsage compares the usage of a random queue with a map of the newest versions, in
// one pass and in several.
func TestUsage(t *testing.T) {
	rng := testseed.Rand(t)
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec = "s2"
	opts.BlockBytes, opts.SegmentBytes = 600, 4000
	w := queuetest.OpenWriter(t, opts)
	now := queuetest.Start.Add(time.Hour).Truncate(time.Second)
	for range 2000 {
		prefix := [...]string{"id", "id", canary.Prefix}[rng.IntN(3)]
		i := queuetest.Item{ID: fmt.Sprint(prefix, rng.IntN(300)), Document: fmt.Sprintf("%0*d", rng.IntN(200), rng.IntN(9))}
		switch rng.IntN(8) {
		case 0:
			i.Deleted = true
		case 1:
			i.Expires = now.Add(time.Duration(rng.IntN(3)-1) * time.Second)
		}
		i.Put(t, w)
	}
	require.NoError(t, w.Flush())

	r := queuetest.OpenReader(t, mem)
	want := make(map[queue.SegmentID]*maintain.Usage)
	newest := make(map[string]queue.Entry)
	require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		s := want[e.Address.Segment]
		if s == nil {
			s = &maintain.Usage{Segment: e.Address.Segment}
			want[s.Segment] = s
		}
		if !e.Deleted {
			s.Documents++
		}
		s.StoredBytes += int64(e.StoredBytes)
		newest[string(e.ID)] = e
		return nil
	}))
	var dead int64
	for id, e := range newest {
		if !e.Deleted && (e.Expires.IsZero() || e.Expires.After(now)) {
			if !canary.Is([]byte(id)) {
				want[e.Address.Segment].LiveDocuments++
			}
			want[e.Address.Segment].LiveBytes += int64(e.StoredBytes)
		}
	}
	const bytesPerID = 67 // see Measure
	for _, memory := range []int64{0, 2000 * bytesPerID / 2, 2000 * bytesPerID / 37} {
		got, err := maintain.Measure(t.Context(), r, now, memory)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		require.Greater(t, len(got), 3)
		for _, u := range got {
			require.Equal(t, *want[u.Segment], u)
			dead += u.DeadBytes()
		}
	}
	require.Positive(t, dead)

	segments, err := r.Segments()
	require.NoError(t, err)
	for _, s := range segments {
		require.Equal(t, s.StoredBytes, want[s.ID].StoredBytes)
	}
	_, err = maintain.Measure(t.Context(), r, now, 10)
	require.ErrorContains(t, err, "give it")
}

// TestUsageOfEmptyQueue: a queue without entries has no usage, for any number of passes.
func TestUsageOfEmptyQueue(t *testing.T) {
	r := queuetest.OpenReader(t, queuetest.NewMem(t))
	got, err := maintain.Measure(t.Context(), r, queuetest.Start, 0)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestUsageOfIncompleteQueue: a queue with a missing segment is an error.
func TestUsageOfIncompleteQueue(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	for i := range 3 {
		(&queuetest.Item{ID: fmt.Sprint(i), Document: "document"}).Put(t, w)
		require.NoError(t, w.Seal())
	}
	require.NoError(t, mem.Remove(segment.Path(queuetest.Dir, 2, segment.SealedSuffix)))
	_, err := maintain.Measure(t.Context(), queuetest.OpenReader(t, mem), queuetest.Start, 0)
	require.ErrorIs(t, err, queue.ErrUnavailable)
}

func BenchmarkUsage(b *testing.B) {
	dir := b.TempDir()
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: "none"})
	require.NoError(b, err)
	const entries = 1 << 20
	for i := range entries {
		_, err := w.Append(fmt.Appendf(nil, "document-%d", i%(entries/2)), []byte("document"))
		require.NoError(b, err)
	}
	require.NoError(b, w.Close())
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: vfs.OS})
	require.NoError(b, err)
	defer r.Close()
	const bytesPerID = 67 // see Measure
	for _, memory := range []int64{maintain.DefaultUsageMemory, entries * bytesPerID / 4} {
		b.Run(fmt.Sprintf("memory=%d", memory), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				usage, err := maintain.Measure(b.Context(), r, time.Now(), memory)
				require.NoError(b, err)
				var live int64
				for _, u := range usage {
					live += u.LiveDocuments
				}
				require.EqualValues(b, entries/2, live)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/entries, "ns/entry")
		})
	}
}
