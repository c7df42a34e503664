package collection

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// BenchmarkIndexing builds the index of a queue twice per round: by a collection that tails
// it, and by lsm alone, which applies the same entries from memory in batches of the same
// size. The ratio of the rates is the cost of reading the entries from the queue.
func BenchmarkIndexing(b *testing.B) {
	const documents = 2_000_000
	dir := b.TempDir()
	queueDir := filepath.Join(dir, "queue")
	require.NoError(b, vfs.OS.MkdirAll(queueDir))
	w, err := queue.OpenWriter(queueDir, nil)
	require.NoError(b, err)
	type pair struct{ id, value []byte }
	pairs := make([]pair, documents)
	for i := range pairs {
		// In random order, as ids arrive.
		id := fmt.Appendf(nil, "job-%08x", uint32(i)*2654435761)
		at, err := w.Append(id, []byte(documentOf(string(id))))
		require.NoError(b, err)
		entry := indexEntry{address: at}
		pairs[i] = pair{id, entry.append(nil)}
	}
	require.NoError(b, w.Close())

	var alone, tailing time.Duration
	for round := 0; b.Loop(); round++ {
		index, err := lsm.Open(filepath.Join(dir, fmt.Sprint("alone-", round)), nil)
		require.NoError(b, err)
		started := time.Now()
		var batch lsm.Batch
		for i, p := range pairs {
			require.NoError(b, batch.Set(p.id, p.value))
			if batch.Len() == maxTailBatchEntries || i == len(pairs)-1 {
				require.NoError(b, index.Apply(&batch))
				batch.Reset()
			}
		}
		alone += time.Since(started)
		require.NoError(b, index.WaitIdle(b.Context()))
		require.NoError(b, index.Close())

		c, err := Open("jobs", queueDir, filepath.Join(dir, fmt.Sprint("tailing-", round)),
			&Options{VerifyInterval: -1})
		require.NoError(b, err)
		started = time.Now()
		require.NoError(b, c.WaitReady(b.Context()))
		tailing += time.Since(started)
		require.EqualValues(b, documents, c.Status().Applied)
		require.NoError(b, c.serving.Load().index.WaitIdle(b.Context()))
		require.NoError(b, c.Close())
	}
	rate := func(took time.Duration) float64 { return float64(b.N) * documents / took.Seconds() }
	b.ReportMetric(rate(alone), "alone-entries/s")
	b.ReportMetric(rate(tailing), "tailing-entries/s")
	b.ReportMetric(rate(tailing)/rate(alone), "ratio")
}
