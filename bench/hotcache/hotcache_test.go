package hotcache

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/maypok86/otter/v2"
	"github.com/stretchr/testify/require"

	"docstore/bench/internal/zipf"
	"docstore/queue"
)

const (
	cacheBytes = 8 << 20
	entryBytes = 100 // of the cache's own for an entry, about
)

// place is where a document is.
type place struct {
	id      []byte
	address queue.Address
}

// fetcher appends a document to dst.
type fetcher func(dst []byte, p *place) ([]byte, error)

// records returns records of the shared corpus, or generated ones.
func records(tb testing.TB, most int) (lines [][]byte) {
	tb.Helper()
	f, err := os.Open("../../../shared/debian-packages.ndjson.gz")
	if err != nil {
		for i := range most {
			lines = append(lines, fmt.Appendf(nil, `{"id":"job-%d","title":"Engineer %d","text":"%0500d"}`, i, i%977, i))
		}
		return lines
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(tb, err)
	in := bufio.NewScanner(z)
	in.Buffer(nil, 1<<20)
	for len(lines) < most && in.Scan() {
		lines = append(lines, append([]byte(nil), in.Bytes()...))
	}
	require.NoError(tb, in.Err())
	return lines
}

// open writes a queue of records and opens it.
func open(tb testing.TB, most int) (*queue.Reader, []place) {
	tb.Helper()
	lines, dir := records(tb, most), tb.TempDir()
	w, err := queue.OpenWriter(dir, nil)
	require.NoError(tb, err)
	places := make([]place, len(lines))
	for i, line := range lines {
		id := fmt.Appendf(nil, "id-%d", i)
		address, err := w.Append(id, line)
		require.NoError(tb, err)
		places[i] = place{id, address}
	}
	require.NoError(tb, w.Close())
	r, err := queue.OpenReader(dir, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.Close()) })
	return r, places
}

// cached is a fetcher that keeps the answers of another one by address.
func cached(tb testing.TB, fetch fetcher) (_ fetcher, hits *int) {
	cache, err := otter.New(&otter.Options[queue.Address, []byte]{
		MaximumWeight: cacheBytes,
		Weigher:       func(_ queue.Address, document []byte) uint32 { return uint32(len(document) + entryBytes) },
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { cache.StopAllGoroutines() })
	hits = new(int)
	return func(dst []byte, p *place) ([]byte, error) {
		if document, ok := cache.GetIfPresent(p.address); ok {
			*hits++
			return append(dst, document...), nil
		}
		out, err := fetch(dst, p)
		if err == nil {
			cache.Set(p.address, append([]byte(nil), out[len(dst):]...))
		}
		return out, err
	}, hits
}

// forms are the two in which a daemon serves documents.
func forms(r *queue.Reader) map[string]fetcher {
	return map[string]fetcher{
		"plain": func(dst []byte, p *place) ([]byte, error) { return r.DocumentFor(dst, p.id, p.address) },
		"stored": func(dst []byte, p *place) ([]byte, error) {
			out, _, err := r.StoredFor(dst, p.id, p.address, queue.BuiltCodecs())
			return out, err
		},
	}
}

func BenchmarkFetch(b *testing.B) {
	r, places := open(b, 60_000)
	random := rand.New(rand.NewPCG(1, 2))
	popular := zipf.New(len(places))
	ranks := random.Perm(len(places)) // popular documents are spread over the queue
	asked := make([]int, 1<<20)
	for i := range asked {
		asked[i] = ranks[popular.Draw(random)]
	}
	for form, fetch := range forms(r) {
		throughCache, hits := cached(b, fetch)
		for _, cache := range []string{"none", "otter"} {
			b.Run(fmt.Sprintf("form=%s/cache=%s", form, cache), func(b *testing.B) {
				b.ReportAllocs()
				fetch := fetch
				if cache == "otter" {
					fetch = throughCache
				}
				*hits = 0
				var dst []byte
				for i := 0; b.Loop(); i++ {
					var err error
					if dst, err = fetch(dst[:0], &places[asked[i%len(asked)]]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(*hits)/float64(b.N), "hits/fetch")
			})
		}
	}
}

// Through the cache come the same bytes, the first time and later.
func TestCached(t *testing.T) {
	r, places := open(t, 1_000)
	for form, fetch := range forms(r) {
		throughCache, hits := cached(t, fetch)
		for range 2 {
			for i := range places {
				want, err := fetch(nil, &places[i])
				require.NoError(t, err, form)
				got, err := throughCache([]byte("before"), &places[i])
				require.NoError(t, err, form)
				require.Equal(t, "before"+string(want), string(got))
			}
		}
		require.Positive(t, *hits)
	}
}
