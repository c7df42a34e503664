package follow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// BenchmarkRollback measures the time from a pin to an earlier manifest until the server
// answers from it. The server has a checkpoint. The later manifest overwrites a tenth
// of the documents. It reports seconds for 10 million entries.
func BenchmarkRollback(b *testing.B) {
	for _, documents := range []int{100_000, 1_000_000, 4_000_000} {
		b.Run(fmt.Sprintf("documents=%d", documents), func(b *testing.B) { benchmarkRollback(b, documents) })
	}
}

func benchmarkRollback(b *testing.B, documents int) {
	dir := b.TempDir()
	store, err := bucket.OpenDir(vfs.OS, filepath.Join(dir, "bucket"))
	require.NoError(b, err)
	log, err := publish.OpenLog(b.Context(), store, time.Now)
	require.NoError(b, err)
	id := func(i int) []byte { return fmt.Appendf(nil, "document-%08d", i) }
	var refs []publish.Ref
	release := func(documents int, content string) {
		w, err := queue.OpenWriter(filepath.Join(dir, "queue"), &queue.WriterOptions{Codec: "none"})
		require.NoError(b, err)
		for i := range documents {
			_, err := w.Append(id(i), []byte(content))
			require.NoError(b, err)
		}
		require.NoError(b, w.Seal())
		require.NoError(b, w.Close())
		p, err := publish.OpenPublisher(b.Context(), store, filepath.Join(dir, "queue"), nil)
		require.NoError(b, err)
		published, err := p.Publish(b.Context())
		require.NoError(b, err)
		require.NoError(b, p.Close())
		refs = append(refs, published.Ref)
		_, err = log.Update(b.Context(), func(r publish.Record) (publish.Record, error) {
			if r, err = r.Validate(published.Ref); err != nil {
				return r, err
			}
			return r.Announce(published.Ref)
		})
		require.NoError(b, err)
	}
	service := collection.NewService()
	f, err := follow.Open("jobs", store, filepath.Join(dir, "server"), service.Replace, &follow.Options{PollInterval: 2 * time.Millisecond, DrainTime: time.Millisecond})
	require.NoError(b, err)
	serves := func(content string) {
		for {
			if document, err := service.Collections()[0].Get(nil, id(0)); err == nil && string(document) == content {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	indexed := func(number uint64) {
		for f.Status().Served != number || !f.Status().Files.IsReady() || !service.Collections()[0].Ready() || service.Collections()[0].Status().LagBytes() > 0 {
			time.Sleep(time.Millisecond)
		}
		for {
			if _, err := os.Stat(filepath.Join(dir, "server", fmt.Sprintf("checkpoint-%010d", number))); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	release(documents, "good")
	indexed(1)
	release(documents/10, "bad")
	serves("bad")
	indexed(2)
	b.ResetTimer()
	for b.Loop() {
		_, err := log.Update(b.Context(), func(r publish.Record) (publish.Record, error) { return r.Pin(publish.Pin{To: refs[0]}) })
		require.NoError(b, err)
		serves("good")
		b.StopTimer()
		_, err = log.Update(b.Context(), func(r publish.Record) (publish.Record, error) { return r.Unpin("", true) })
		require.NoError(b, err)
		serves("bad")
		indexed(2)
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*10_000_000/float64(documents), "s/10M")
	require.NoError(b, f.Close())
}
