package queue_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"testing"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/stored"

	"github.com/stretchr/testify/require"
)

// benchDocuments returns the records of bench/corpus if they were made, otherwise generated ones.
func benchDocuments(b *testing.B) (documents [][]byte, bytes int) {
	const count = 20_000
	const corpus = "../bench/debian.ndjson.gz"
	if f, err := os.Open(corpus); err != nil {
		b.Logf("generated documents, because %s does not exist; see bench/corpus", corpus)
	} else {
		defer f.Close()
		z, err := gzip.NewReader(f)
		require.NoError(b, err)
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 1<<20)
		for len(documents) < count && lines.Scan() {
			documents = append(documents, append([]byte(nil), lines.Bytes()...))
		}
	}
	for i := len(documents); i < count; i++ {
		documents = append(documents, []byte(queuetest.Posting(i)))
	}
	for _, d := range documents {
		bytes += len(d)
	}
	return documents, bytes
}

func BenchmarkAppend(b *testing.B) {
	documents, bytes := benchDocuments(b)
	for _, codec := range codec.Names() {
		b.Run("codec="+codec, func(b *testing.B) {
			dir := b.TempDir()
			w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: codec})
			require.NoError(b, err)
			b.ReportAllocs()
			b.SetBytes(int64(bytes / len(documents)))
			for i := range b.N {
				n := i % len(documents)
				if _, err := w.Append(fmt.Appendf(nil, "id-%d", n), documents[n]); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, w.Close())
			b.StopTimer()
			r, err := queue.OpenReader(dir, nil)
			require.NoError(b, err)
			infos, err := r.Segments()
			require.NoError(b, err)
			var raw, size int64
			for _, info := range infos {
				raw, size = raw+info.RawBytes, size+info.Bytes
			}
			b.ReportMetric(float64(size)/float64(raw), "stored/raw")
			require.NoError(b, r.Close())
		})
	}
}

// benchQueue writes a queue with the documents. Nearly all segments have a dictionary if
// the codec supports one.
func benchQueue(b *testing.B, codec string) (*queue.Reader, []queuetest.Item) {
	documents, _ := benchDocuments(b)
	dir := b.TempDir()
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: codec})
	require.NoError(b, err)
	items := make([]queuetest.Item, 0, len(documents))
	for i, d := range documents {
		it := queuetest.Item{ID: fmt.Sprint("id-", i), Document: string(d)}
		it.Put(b, w)
		if items = append(items, it); i == 2000 {
			require.NoError(b, w.Flush())
			w.Trainer().Wait()
		}
	}
	require.NoError(b, w.Close())
	r, err := queue.OpenReader(dir, nil)
	require.NoError(b, err)
	b.Cleanup(func() { r.Close() })
	return r, items
}

func BenchmarkDocument(b *testing.B) {
	for _, codec := range codec.Names() {
		b.Run("codec="+codec, func(b *testing.B) {
			r, items := benchQueue(b, codec)
			b.ReportAllocs()
			var dst []byte
			var bytes int
			for i := 0; b.Loop(); i++ {
				it := &items[i*7919%len(items)]
				var err error
				if dst, err = r.DocumentFor(dst[:0], []byte(it.ID), it.At); err != nil {
					b.Fatal(err)
				}
				bytes += len(dst)
				if string(dst) != it.Document {
					b.Fatal("wrong document")
				}
			}
			b.SetBytes(int64(bytes / b.N))
		})
	}
}

// BenchmarkStoredFor measures fetching a document for a client that decodes it.
func BenchmarkStoredFor(b *testing.B) {
	for _, name := range codec.Names() {
		b.Run("codec="+name, func(b *testing.B) {
			r, items := benchQueue(b, name)
			b.ReportAllocs()
			var dst []byte
			for i := 0; b.Loop(); i++ {
				it := &items[i*7919%len(items)]
				var err error
				if dst, _, err = r.StoredFor(dst[:0], queue.Wanted{ID: []byte(it.ID), Address: it.At}, codec.Built()); err != nil {
					b.Fatal(err)
				}
				if _, err := stored.Parse(dst, []byte(it.ID)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStoredForAll measures fetching the stored forms of 64 documents in one call.
// The time is per document.
func BenchmarkStoredForAll(b *testing.B) {
	r, items := benchQueue(b, "s2")
	ids := make([][]byte, len(items))
	for i := range items {
		ids[i] = []byte(items[i].ID)
	}
	b.ReportAllocs()
	wanted := make([]queue.Wanted, 64)
	dst := make([]byte, 0, 1<<20)
	next := 0
	for b.Loop() {
		for i := range wanted {
			n := next * 7919 % len(items)
			wanted[i], next = queue.Wanted{ID: ids[n], Address: items[n].At}, next+1
		}
		r.StoredForAll(dst, wanted, codec.Built(), func(i int, dst []byte, asStored bool, err error) ([]byte, bool) {
			if err != nil || !asStored {
				b.Fatal(i, err)
			}
			return dst, true
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(wanted)), "ns/document")
}

func BenchmarkScan(b *testing.B) {
	r, items := benchQueue(b, "s2")
	b.ReportAllocs()
	for b.Loop() {
		count := 0
		if err := r.Scan(b.Context(), queue.Position{}, func(queue.Entry) error { count++; return nil }); err != nil {
			b.Fatal(err)
		}
		require.Equal(b, len(items), count)
	}
	b.ReportMetric(float64(b.N)*float64(len(items))/b.Elapsed().Seconds(), "entries/s")
}
