package ingest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/queue/shardset"
)

// dated is a Source of batches of one record with the time of its oldest one.
type dated struct {
	lines
	times []time.Time
}

func (d *dated) Next(context.Context) (*Batch, error) {
	if len(d.times) == 0 {
		return nil, io.EOF
	}
	b := &Batch{
		Records: []Record{{ID: []byte("a"), Document: []byte("{}")}}, Oldest: d.times[0],
		AppendCursor: func(dst []byte, _ int) []byte { return dst }, Place: func(int) string { return "" },
	}
	d.times = d.times[1:]
	return b, nil
}

// TestOldestOfAFlush: each flush is told of the oldest record since the one before.
func TestOldestOfAFlush(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	writer, err := shardset.Open(t.TempDir(), nil)
	require.NoError(t, err)
	var oldest []time.Time
	from := &dated{times: []time.Time{at(30), at(20), {}, at(50), at(40), {}, {}}}
	a := NewAppender(from, true, &CatchUp{Writer: writer}, Options{
		Flushed: func(at Progress, _ time.Duration) { oldest = append(oldest, at.Oldest) },
	})
	entries := 0
	a.options.Appended = func(Progress) {
		if entries++; entries == 4 { // the batch counts when it is complete: it is that of the next flush
			require.NoError(t, a.flushDurably())
		}
	}
	require.NoError(t, a.Run(t.Context()))
	require.NoError(t, writer.Close())
	require.Equal(t, []time.Time{at(20), at(40)}, oldest)
	require.Zero(t, a.Progress().Oldest)
}

// The time of the event of a document replaces that of the batch.
func TestOldestEventOfAFlush(t *testing.T) {
	writer, err := shardset.Open(t.TempDir(), nil)
	require.NoError(t, err)
	var oldest []time.Time
	times := []time.Time{time.Unix(50, 0), {}, time.Unix(40, 0), time.Unix(60, 0)} // of the documents
	a := NewAppender(&dated{times: make([]time.Time, len(times))}, true, &CatchUp{Writer: writer}, Options{
		Flushed: func(at Progress, _ time.Duration) { oldest = append(oldest, at.Oldest) },
		EventTime: func([]byte) (at time.Time) {
			at, times = times[0], times[1:]
			return at
		},
	})
	require.NoError(t, a.Run(t.Context()))
	require.NoError(t, writer.Close())
	require.Equal(t, []time.Time{time.Unix(40, 0)}, oldest)
}
