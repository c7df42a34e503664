//go:build unix

package queue_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/stored"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
)

// BenchmarkFetchBesideDecode measures the cost of a fetch beyond decoding, and its
// allocations. It alternates between decoding a thousand stored documents in memory and
// fetching the same documents from their segments in the page cache into the caller's
// memory. It counts processor time and reports the medians. Run it with -cpu 1.
func BenchmarkFetchBesideDecode(b *testing.B) {
	const turn = 1000
	for _, name := range codec.Names() {
		b.Run("codec="+name, func(b *testing.B) {
			r, items := benchQueue(b, name)
			stored := make([]storedItem, len(items))
			ids := make([][]byte, len(items))
			for i := range items {
				ids[i], stored[i] = []byte(items[i].ID), storedItemOf(b, r, &items[i])
			}
			var order [turn]int
			dst := make([]byte, 0, 1<<20)
			var decoding, fetching, beyond []time.Duration
			var allocated uint64
			for next := 0; b.Loop(); next += turn {
				for i := range order {
					order[i] = (next + i) * 7919 % len(items)
				}
				start := cpuTime(b)
				for _, n := range order {
					dst = stored[n].decode(b, dst[:0])
				}
				between := cpuTime(b)
				before := mallocs()
				started := cpuTime(b)
				for _, n := range order {
					var err error
					if dst, err = r.DocumentFor(dst[:0], ids[n], items[n].At); err != nil {
						b.Fatal(err)
					}
				}
				decoded, fetched := between-start, cpuTime(b)-started
				allocated += mallocs() - before
				decoding, fetching, beyond = append(decoding, decoded), append(fetching, fetched), append(beyond, fetched-decoded)
			}
			require.Equal(b, items[order[turn-1]].Document, string(dst))
			for unit, took := range map[string][]time.Duration{"decode-ns": decoding, "fetch-ns": fetching, "beyond-ns": beyond} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/turn, unit)
			}
			b.ReportMetric(float64(allocated)/float64(turn*b.N), "allocs/fetch")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkS2BesideLibrary compares decoding S2 with a dictionary by this package and by
// the library, alternately. It counts processor time and reports the medians. Run it with
// -cpu 1.
func BenchmarkS2BesideLibrary(b *testing.B) {
	const turn = 2000
	documents, _ := benchDocuments(b)
	c, err := codec.ByName("s2")
	require.NoError(b, err)
	dictionary := benchDictionary(b, c, documents)
	library := s2.NewDict(dictionary)
	ours, err := c.NewDecoder(dictionary)
	require.NoError(b, err)
	blocks := make([][]byte, len(documents))
	for i, document := range documents {
		blocks[i] = library.EncodeBetter(nil, document)
	}
	dst := make([]byte, 0, 1<<20)
	var libraries, our []time.Duration
	for next := 0; b.Loop(); next += turn {
		started := cpuTime(b)
		for i := range turn {
			if _, err := library.Decode(dst, blocks[(next+i)*7919%len(blocks)]); err != nil {
				b.Fatal(err)
			}
		}
		between := cpuTime(b)
		for i := range turn {
			n := (next + i) * 7919 % len(blocks)
			if _, err := ours.Decode(dst, blocks[n], len(documents[n])); err != nil {
				b.Fatal(err)
			}
		}
		libraries, our = append(libraries, between-started), append(our, cpuTime(b)-between)
	}
	for unit, took := range map[string][]time.Duration{"library-ns": libraries, "ours-ns": our} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/turn, unit)
	}
	b.ReportMetric(0, "ns/op")
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

// storedItem is a document in its stored form with its decoders.
type storedItem struct {
	form     stored.Form
	decoders *stored.Decoders
}

func storedItemOf(b *testing.B, r *queue.Reader, it *queuetest.Item) storedItem {
	b.Helper()
	bytes, asStored, err := r.StoredFor(nil, queue.Wanted{ID: []byte(it.ID), Address: it.At}, codec.Built())
	require.NoError(b, err)
	require.True(b, asStored)
	form, err := stored.Parse(bytes, []byte(it.ID))
	require.NoError(b, err)
	return storedItem{form, stored.NewDecoders(r.Files().Decoders, func(_ context.Context, hash codec.DictionaryHash) ([]byte, error) {
		return r.Dictionary(nil, hash)
	})}
}

func (s *storedItem) decode(b *testing.B, dst []byte) []byte {
	dst, err := s.decoders.Decode(b.Context(), dst, s.form)
	if err != nil {
		b.Fatal(err)
	}
	return dst
}
