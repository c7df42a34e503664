package ingest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/canary"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// waiting is a Source of the batches that are sent to it.
type waiting struct {
	lines
	batches chan *Batch
}

func (w *waiting) Next(ctx context.Context) (*Batch, error) {
	select {
	case b := <-w.batches:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// batchOf returns a batch of so many records, whose oldest one is of a time.
func batchOf(records int, oldest time.Time) *Batch {
	b := &Batch{
		Oldest:       oldest,
		AppendCursor: func(dst []byte, i int) []byte { return fmt.Append(dst, i) }, Place: func(int) string { return "here" },
	}
	for i := range records {
		b.Records = append(b.Records, Record{ID: fmt.Append(nil, i), Document: []byte("{}")})
	}
	return b
}

// flushedCanaries returns the canaries of all shards that readers see, in the order of each.
func flushedCanaries(t *testing.T, disk *vfs.Mem, layout shard.Layout) map[int][]canary.Document {
	found := map[int][]canary.Document{}
	for i := range layout.Shards {
		r, err := queue.OpenReader(layout.Dir("/queue", i), &queue.ReaderOptions{FS: disk})
		require.NoError(t, err)
		require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
			if canary.Is(e.ID) {
				document, err := r.DocumentFor(nil, e.ID, e.Address)
				require.NoError(t, err)
				d, ok := canary.Decode(document)
				require.True(t, ok, "%s", document)
				require.Equal(t, string(e.ID), d.ID)
				require.True(t, e.Expires.Equal(d.Expires), "%v", e.Expires)
				found[i] = append(found[i], d)
			}
			return nil
		}))
		require.NoError(t, r.Close())
	}
	return found
}

// Each shard has a canary of each minute, also while no record arrives. It is flushed like a record,
// has the age of the newest batch, and is in no count.
func TestCanaries(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		disk, layout := vfs.NewMem(), shard.Layout{Shards: 4, Seed: 1}
		writer, err := shardset.Open("/queue", &shardset.Options{FS: disk, Layout: layout, Codec: "none"})
		require.NoError(t, err)
		from := &waiting{batches: make(chan *Batch)}
		var flushed atomic.Int32
		a := NewAppender(from, false, &CatchUp{Writer: writer}, Options{
			FlushInterval: time.Second, CanaryInterval: time.Minute, Flushed: func(Progress, time.Duration) { flushed.Add(1) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		start := time.Now()
		time.Sleep(59 * time.Second)
		require.Empty(t, flushedCanaries(t, disk, layout), "the age of the source is not known yet")
		from.batches <- batchOf(3, start.Add(-time.Hour))
		time.Sleep(500 * time.Millisecond) // it is appended
		from.batches <- batchOf(1, time.Now().Add(-time.Second))
		time.Sleep(2 * time.Second)
		for i := range layout.Shards {
			of := flushedCanaries(t, disk, layout)[i]
			require.Len(t, of, 1, "shard %d", i)
			require.Equal(t, time.Minute, of[0].Sent.Sub(start))
			require.Equal(t, time.Second, of[0].SourceAge())
		}
		require.Equal(t, int32(1), flushed.Load())

		time.Sleep(time.Minute)
		for i := range layout.Shards {
			of := flushedCanaries(t, disk, layout)[i]
			require.Len(t, of, 2, "shard %d", i)
			require.Equal(t, 2*time.Minute, of[1].Sent.Sub(start))
			require.Zero(t, of[1].SourceAge(), "no record arrived")
		}
		require.Equal(t, int32(1), flushed.Load(), "a flush of canaries alone is no news for the source")
		at := a.Progress()
		require.Equal(t, int64(4), at.Entries())
		cancel()
		require.ErrorIs(t, <-done, ErrInterrupted)
		require.NoError(t, writer.Close())
		synctest.Wait()
	})
}

// A batch that Rate holds for hours does not delay canaries.
func TestCanariesOfASlowBatch(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		disk, layout := vfs.NewMem(), shard.Layout{Shards: 1}
		writer, err := shardset.Open("/queue", &shardset.Options{FS: disk, Layout: layout, Codec: "none"})
		require.NoError(t, err)
		from := &waiting{batches: make(chan *Batch, 1)}
		from.batches <- batchOf(1000, time.Time{})
		a := NewAppender(from, false, &CatchUp{Writer: writer}, Options{FlushInterval: time.Second, CanaryInterval: time.Minute, Rate: 0.1})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(10*time.Minute + 15*time.Second)
		require.Len(t, flushedCanaries(t, disk, layout)[0], 10)
		cancel()
		require.ErrorIs(t, <-done, ErrInterrupted)
		require.NoError(t, writer.Close())
	})
}
