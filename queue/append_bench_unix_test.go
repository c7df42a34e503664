//go:build unix

package queue_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkAppendBesideCodec compares the processor time of appending with that of the
// codec: it encodes the same documents with the same dictionary alone, and appends them,
// in sequence. Run it with -cpu 1.
func BenchmarkAppendBesideCodec(b *testing.B) {
	documents, bytes := benchDocuments(b)
	ids := make([][]byte, len(documents))
	for i := range ids {
		ids[i] = fmt.Append(nil, "id-", i)
	}
	for _, name := range codec.Names() {
		c, err := codec.ByName(name)
		require.NoError(b, err)
		if c.ID == codec.None {
			continue
		}
		b.Run("codec="+name, func(b *testing.B) {
			d, err := dictionary.New(c, benchDictionary(b, c, documents))
			require.NoError(b, err)
			w, err := queue.OpenWriter(b.TempDir(), &queue.WriterOptions{Codec: name, DictionaryBytes: -1})
			require.NoError(b, err)
			w.Trainer().Use(d)
			w.SetLastRaw(1 << 40)
			var alone, appending time.Duration
			var out []byte
			for b.Loop() {
				start := cpuTime(b)
				for _, document := range documents {
					out, _ = segment.AppendEncoded(d.Encoder, out[:0], document)
				}
				between := cpuTime(b)
				for i, document := range documents {
					_, err := w.Append(ids[i], document)
					require.NoError(b, err)
				}
				require.NoError(b, w.Flush())
				alone, appending = alone+between-start, appending+cpuTime(b)-between
			}
			require.NoError(b, w.Close())
			b.ReportMetric(alone.Seconds()/appending.Seconds(), "codec/append")
			b.ReportMetric(float64(b.N)*float64(bytes)/1e6/appending.Seconds(), "MB/cpu-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
