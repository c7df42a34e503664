//go:build unix

package shardset

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
	"docstore/queue"
	"docstore/queue/shard"
)

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// storedBytes returns the bytes of the documents in a queue.
func storedBytes(b *testing.B, dirs ...string) (stored int64) {
	for _, dir := range dirs {
		r, err := queue.OpenReader(dir, nil)
		require.NoError(b, err)
		infos, err := r.Segments()
		require.NoError(b, err)
		for _, info := range infos {
			stored += info.StoredBytes
		}
		require.NoError(b, r.Close())
	}
	return stored
}

// BenchmarkAppendBesideOneQueue compares the processor time of appending to shards with that of
// appending the same documents to one queue, in turns. Each iteration appends 128 MiB and
// flushes every 64 MiB. The size of the stored documents is compared at the end.
func BenchmarkAppendBesideOneQueue(b *testing.B) {
	const bytes, flushBytes = 128 << 20, 64 << 20
	postings := jobs.New(1)
	var documents [][]byte
	for size := 0; size < bytes; size += len(documents[len(documents)-1]) {
		documents = append(documents, append([]byte(nil), postings.Next()...))
	}
	for _, shards := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			dir := b.TempDir()
			one, err := queue.OpenWriter(filepath.Join(dir, "one"), nil)
			require.NoError(b, err)
			set, err := Open(filepath.Join(dir, "set"), &Options{Layout: shard.Layout{Shards: shards, Seed: 1}})
			require.NoError(b, err)
			n := 0
			var id, cursor []byte
			appendTo := func(put func(queue.Record) error, flush func() error) time.Duration {
				start, pending, first := cpuTime(b), 0, n
				for i, document := range documents {
					id, cursor = fmt.Appendf(id[:0], "job-%d", first+i), fmt.Appendf(cursor[:0], "jobs.ndjson:%d", first+i)
					require.NoError(b, put(queue.Record{ID: id, Document: document, Cursor: cursor}))
					if pending += len(document); pending >= flushBytes {
						pending = 0
						require.NoError(b, flush())
					}
				}
				require.NoError(b, flush())
				return cpuTime(b) - start
			}
			var alone, inShards time.Duration
			for b.Loop() {
				alone += appendTo(func(r queue.Record) error { _, err := one.Put(r); return err }, one.Flush)
				inShards += appendTo(set.Put, set.Flush)
				n += len(documents)
			}
			require.NoError(b, one.Close())
			require.NoError(b, set.Close())
			var dirs []string
			for i := range shards {
				dirs = append(dirs, shard.Layout{Shards: shards}.Dir(filepath.Join(dir, "set"), i))
			}
			b.ReportMetric(alone.Seconds()/inShards.Seconds(), "throughput/one-queue")
			b.ReportMetric(float64(storedBytes(b, dirs...))/float64(storedBytes(b, filepath.Join(dir, "one"))), "stored/one-queue")
			b.ReportMetric(float64(b.N)*bytes/1e6/inShards.Seconds(), "MB/cpu-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
