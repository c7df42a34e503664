package publish_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// BenchmarkDistribution publishes 200,000 documents of 1,000 bytes to a directory and then a
// tenth more, and fetches both manifests as a server does. It restores the queue, and
// reports the time per gigabyte, and the bytes that publishing and fetching move in relation
// to those of the files.
func BenchmarkDistribution(b *testing.B) {
	const documents = 200_000
	dir := b.TempDir()
	store, err := bucket.OpenDir(vfs.OS, filepath.Join(dir, "bucket"))
	require.NoError(b, err)
	client, err := bucket.NewClient(store, bucket.Options{})
	require.NoError(b, err)
	text := []byte(strings.Repeat("0123456789", 100))
	var manifests []*publish.Manifest
	for _, count := range []int{documents, documents / 10} {
		w, err := queue.OpenWriter(filepath.Join(dir, "queue"), &queue.WriterOptions{Codec: "none"})
		require.NoError(b, err)
		for i := range count {
			_, err := w.Append(fmt.Appendf(nil, "document-%d-%d", count, i), text)
			require.NoError(b, err)
		}
		require.NoError(b, w.Seal())
		require.NoError(b, w.Close())
		p, err := publish.OpenPublisher(b.Context(), client, filepath.Join(dir, "queue"), nil)
		require.NoError(b, err)
		published, err := p.Publish(b.Context())
		require.NoError(b, err)
		require.NoError(b, p.Close())
		manifests = append(manifests, published.Manifest)
	}
	last := manifests[1]
	put := moved(client, "put")
	replica := publish.NewReplica(client, filepath.Join(dir, "server"), nil)
	for _, m := range manifests {
		require.NoError(b, replica.Fetch(b.Context(), m))
	}
	got := moved(client, "get")

	b.ResetTimer()
	for b.Loop() {
		restored := filepath.Join(dir, "restored")
		require.NoError(b, publish.Restore(b.Context(), client, last, restored, nil))
		b.StopTimer()
		require.NoError(b, os.RemoveAll(restored))
		b.StartTimer()
	}
	size := float64(last.Bytes())
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/size*1e9, "s/GB")
	b.ReportMetric(float64(put)/size, "put/byte")
	b.ReportMetric(float64(got)/size, "got/byte")
}

// moved returns the bytes of the requests of a kind.
func moved(client *bucket.Client, operation string) int64 {
	for _, o := range client.Stats().Operations {
		if o.Operation == operation {
			return o.Bytes
		}
	}
	return 0
}
