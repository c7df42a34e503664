package collection

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/memcached"
	"docstore/docservice/memcached/memcachedtest"
	"docstore/internal/jobs"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
	"docstore/queue/stored"
)

// newCache opens a cache that soon detects when servers return.
func newCache(t testing.TB, servers ...*memcachedtest.Server) *Cache {
	t.Helper()
	var addresses []string
	for _, server := range servers {
		addresses = append(addresses, server.Address)
	}
	cache, err := OpenCache(addresses, &memcached.Options{Timeout: 5 * time.Second, FirstPause: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	return cache
}

// newMemoryCache opens a cache in a server of this process.
func newMemoryCache(t testing.TB) (*Cache, *memcachedtest.Memory) {
	t.Helper()
	server := memcachedtest.StartMemory(t)
	cache, err := OpenCache([]string{server.Address}, &memcached.Options{Timeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	return cache, server
}

// memoryCachedFixture is a fixture whose collections have a cache in this process.
func memoryCachedFixture(t testing.TB) (*fixture, *Cache, *memcachedtest.Memory) {
	cache, server := newMemoryCache(t)
	f := newMemFixture(t)
	f.options.Cache = cache
	return f, cache, server
}

// cachedFixture is a fixture whose collections have a cache.
func cachedFixture(t testing.TB, servers ...*memcachedtest.Server) (*fixture, *Cache) {
	cache := newCache(t, servers...)
	f := newMemFixture(t)
	f.options.Cache = cache
	return f, cache
}

// waitStats waits until the cache's statistics are as wanted.
func waitStats(t testing.TB, cache *Cache, what string, wanted func(CacheStats) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return wanted(cache.Stats()) }, patience, time.Millisecond, what)
}

// place is the location of a document in the cache.
type place struct {
	cache  *Cache
	server int
	key    string
}

// placeOf returns the place of the current document of an id.
func placeOf(t testing.TB, c *Collection, id string) place {
	t.Helper()
	entry, ok := c.serving.Load().reader.cachedBefore([]byte(id))
	require.True(t, ok)
	server, ok := c.serving.Load().reader.cacheServer(entry)
	require.True(t, ok)
	key := c.serving.Load().reader.cacheKey(entry)
	require.Len(t, key, 52)
	return place{c.options.Cache, server, key}
}

func (p place) get() ([]byte, bool) { return p.cache.servers.Get(p.server, p.key) }

// The tail stores new documents in both servers, in order.
func TestCacheIsLoadedByTheTail(t *testing.T) {
	first, second := memcachedtest.Start(t), memcachedtest.Start(t)
	f, cache := cachedFixture(t, first, second)
	f.putMany("a", 500)
	c := f.ready()
	waitStats(t, cache, "500 are loaded", func(s CacheStats) bool { return s.Loaded == 500 })
	for i := range 500 {
		id := fmt.Sprint("a-", i)
		requireDocument(t, c, id, documentOf(id))
	}
	stats := cache.Stats()
	require.EqualValues(t, 500, stats.Hits)
	require.Zero(t, stats.Misses+stats.Wrong+stats.Dropped+stats.Refused)
	require.Equal(t, 2, stats.ServersUp)

	require.Equal(t, CacheHit, c.CacheState([]byte("a-7")))
	require.Equal(t, CacheNone, c.CacheState([]byte("never")))
	before, gone := placeOf(t, c, "a-7"), placeOf(t, c, "a-8")
	_, err := f.queueWriter().Delete([]byte("a-8"))
	require.NoError(t, err)
	require.NoError(t, c.WaitFor(soon(t), f.put("a-7", "new")))
	waitStats(t, cache, "the new one is loaded", func(s CacheStats) bool { return s.Loaded == 501 })
	requireDocument(t, c, "a-7", "new")
	requireNone(t, c, "a-8", docservice.ErrNotFound)
	require.EqualValues(t, 501, cache.Stats().Hits)
	for _, p := range []place{before, gone} {
		require.Eventually(t, func() bool { _, there := p.get(); return !there }, patience, time.Millisecond)
	}
}

// Documents from the cache are the same in every mode: single and in batches, stored and
// plain, with a dictionary and without.
func TestCacheServesEveryClient(t *testing.T) {
	server := memcachedtest.Start(t, "-m", "256")
	for _, codec := range []string{"s2", "zstd", "none"} {
		t.Run(codec, func(t *testing.T) {
			cache := newCache(t, server)
			f, documents := compressedFixture(t, codec)
			f.options.Cache = cache
			client := dial(t, serve(t, f.ready()))
			for _, client := range []*docservice.Client{client, client.Plain()} {
				for range 2 { // the second time from the cache
					var ids []string
					for i := 0; i < compressedDocuments; i += 1 + compressedDocuments/90 {
						ids = append(ids, jobs.ID(i+1))
					}
					ids = append(ids, "none", lastID, lastID)
					err := client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
						if ids[i] == "none" {
							require.ErrorIs(t, err, docservice.ErrNotFound)
							return nil
						}
						require.NoError(t, err)
						require.True(t, bytes.Equal(documents[ids[i]], document))
						return nil
					})
					require.NoError(t, err)
					got, err := client.Get(soon(t), nil, lastID)
					require.NoError(t, err)
					require.True(t, bytes.Equal(documents[lastID], got))
					loaded := cache.Stats()
					waitStats(t, cache, "misses are loaded", func(s CacheStats) bool {
						return s.Loaded > 0 && s.Loaded+s.Dropped >= loaded.Misses
					})
				}
			}
			require.NotZero(t, cache.Stats().Hits)
			require.Zero(t, cache.Stats().Wrong)
		})
	}
}

// For any wrong value under a key, the right document is served, and the value is replaced.
func TestCacheWithWrongValues(t *testing.T) {
	server := memcachedtest.Start(t)
	f, cache := cachedFixture(t, server)
	f.putMany("a", 3)
	c := f.ready()
	waitStats(t, cache, "3 are loaded", func(s CacheStats) bool { return s.Loaded == 3 })
	at := placeOf(t, c, "a-1")
	good, ok := at.get()
	require.True(t, ok)
	other, ok := placeOf(t, c, "a-2").get()
	require.True(t, ok)
	lies := [][]byte{{}, []byte("x"), other, []byte(documentOf("a-1")), append(bytes.Clone(good), 'x'), bytes.Repeat([]byte{0xff}, 1000)}
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x11
		lies = append(lies, flipped, good[:i])
	}
	liar := memcache.New(server.Address)
	defer liar.Close()
	client := dial(t, serve(t, c))
	for i, lie := range lies {
		require.NoError(t, liar.Set(&memcache.Item{Key: at.key, Value: lie}))
		before := cache.Stats()
		switch i % 3 {
		case 0:
			requireDocument(t, c, "a-1", documentOf("a-1"))
		case 1:
			got, err := client.Get(soon(t), nil, "a-1")
			require.NoError(t, err)
			require.Equal(t, documentOf("a-1"), string(got))
		case 2:
			_, answers, err := c.GetMany(nil, [][]byte{[]byte("a-0"), []byte("a-1")}, docservice.MaxReplyBytes)
			require.NoError(t, err)
			require.Equal(t, documentOf("a-1"), string(answers[1].Document))
		}
		require.Equal(t, before.Wrong+1, cache.Stats().Wrong, "lie %d", i)
		waitStats(t, cache, "it is replaced", func(s CacheStats) bool { return s.Loaded == before.Loaded+1 })
		repaired, ok := at.get()
		require.True(t, ok)
		require.Equal(t, good, repaired)
	}
	// The stored form of the same document at another address: a previous version.
	require.NoError(t, c.WaitFor(soon(t), f.put("a-1", "new")))
	waitStats(t, cache, "the new one is loaded", func(s CacheStats) bool { return s.Loaded == uint64(len(lies))+4 })
	require.NoError(t, liar.Set(&memcache.Item{Key: placeOf(t, c, "a-1").key, Value: good}))
	require.Equal(t, CacheWrong, c.CacheState([]byte("a-1")))
	requireDocument(t, c, "a-1", "new")
}

// A value with the right address and id is wrong if its document is another one than that in
// the index: it is of another history of the queue.
func TestCacheWithAnotherHistory(t *testing.T) {
	f, cache, server := memoryCachedFixture(t)
	f.put("first", documentOf("first"))
	f.seal()
	require.NoError(t, f.writer.Close())
	other := newFixture(t, f.fs.(*vfs.Mem).CrashClone(vfs.KeepAll), string(filepath.Separator))
	other.options.Cache = cache
	f.writer = nil
	var values [2][]byte
	var at place
	for i, f := range []*fixture{f, other} {
		f.put("a", fmt.Sprint("document ", i))
		c := f.ready()
		waitStats(t, cache, "both are loaded", func(s CacheStats) bool { return s.Loaded == uint64(2*i+2) })
		if i == 1 {
			require.Equal(t, at, placeOf(t, c, "a"))
		}
		at = placeOf(t, c, "a")
		values[i], _ = at.get()
		require.NotEmpty(t, values[i])
		require.NoError(t, c.Close())
	}
	require.NotEqual(t, values[0], values[1])
	liar := memcache.New(server.Address)
	defer liar.Close()
	require.NoError(t, liar.Set(&memcache.Item{Key: at.key, Value: values[0]})) // as if the second load had been dropped
	c := other.ready()
	requireDocument(t, c, "a", "document 1")
	require.EqualValues(t, 1, cache.Stats().Wrong)
	waitStats(t, cache, "it is replaced", func(s CacheStats) bool { return s.Loaded == 5 })
	requireDocument(t, c, "a", "document 1")
	require.EqualValues(t, 1, cache.Stats().Wrong)
}

// Withdrawn documents are not served from the cache, neither by an open collection nor after
// a restart.
func TestCacheAfterTruncation(t *testing.T) {
	f, cache, _ := memoryCachedFixture(t)
	f.options.RetryInterval = time.Hour // the index is not rebuilt
	f.put("stays", documentOf("stays"))
	from := f.put("withdrawn", documentOf("withdrawn"))
	c := f.ready()
	waitStats(t, cache, "both are loaded", func(s CacheStats) bool { return s.Loaded == 2 })
	requireDocument(t, c, "withdrawn", documentOf("withdrawn"))
	require.EqualValues(t, 1, cache.Stats().Hits)
	require.NoError(t, f.writer.Close())
	_, err := maintain.Truncate(t.Context(), f.queueDir, from, &maintain.TruncateOptions{FS: f.fs})
	require.NoError(t, err)
	waitFor(t, c, "it is noticed", func(s Status) bool { return !s.Ready })
	require.Contains(t, c.Status().Index.Cause, "truncated")
	for range 2 {
		requireNone(t, c, "withdrawn", docservice.ErrUnavailable)
		_, answers, err := c.GetMany(nil, [][]byte{[]byte("withdrawn")}, docservice.MaxReplyBytes)
		require.NoError(t, err)
		require.ErrorIs(t, answers[0].Err, docservice.ErrUnavailable)
		requireDocument(t, c, "stays", documentOf("stays"))
		require.EqualValues(t, 1, cache.Stats().Hits)
		require.NoError(t, c.Close())
		c = f.open()
	}
}

// A document that compaction has encoded again since it was indexed is not stored: its value
// would be taken for a wrong one.
func TestCacheOfRecodedDocument(t *testing.T) {
	f, cache, _ := memoryCachedFixture(t)
	f.put("a", documentOf("a"))
	c := f.ready()
	waitStats(t, cache, "it is loaded", func(s CacheStats) bool { return s.Loaded == 1 })
	s := c.serving.Load()
	entry, ok := s.reader.cachedBefore([]byte("a"))
	require.True(t, ok)
	before := entry
	before.place[0] ^= 1
	for _, entry := range []indexEntry{before, entry} {
		cache.enqueue(cacheLoad{reader: s.reader, id: "a", entry: entry})
	}
	require.NoError(t, c.WaitFor(soon(t), f.put("b", documentOf("b"))))
	waitStats(t, cache, "b is loaded", func(CacheStats) bool { _, there := placeOf(t, c, "b").get(); return there })
	require.NoError(t, c.Close())
	require.NoError(t, cache.Close()) // waits for the last load
	require.EqualValues(t, 3, cache.Stats().Loaded)
}

// A document in the cache needs a dictionary that an erasure has replaced: it is read from the
// segment, whose dictionary is here.
func TestCacheOfAnErasedDictionary(t *testing.T) {
	f, documents := compressedFixture(t, "zstd")
	cache, _ := newMemoryCache(t)
	f.options.Cache = cache
	c := f.ready()
	form := func() stored.Form {
		t.Helper()
		value, asStored, err := c.get(t.Context(), nil, []byte(lastID), anyCodec, nil)
		require.NoError(t, err)
		require.True(t, asStored)
		form, err := stored.Parse(value, []byte(lastID))
		require.NoError(t, err)
		return form
	}
	before := form()
	waitStats(t, cache, "it is loaded", func(CacheStats) bool { _, there := placeOf(t, c, lastID).get(); return there })
	_, err := c.dictionary(before.Dictionary)
	require.NoError(t, err)

	for n := range compressedDocuments / 2 { // samples of the dictionary
		_, err := f.queueWriter().Delete([]byte(jobs.ID(n + 1)))
		require.NoError(t, err)
	}
	f.seal()
	f.clock.advance(time.Hour)
	_, err = maintain.Compact(t.Context(), f.queueDir, &maintain.CompactOptions{FS: f.fs, EraseDead: true, DeleteOriginals: true, Now: f.clock.Now})
	require.NoError(t, err)
	require.NoError(t, c.serving.Load().queue.DropReplaced())
	_, err = c.dictionary(before.Dictionary)
	require.ErrorIs(t, err, docservice.ErrUnavailable)

	requireDocument(t, c, lastID, string(documents[lastID]))
	_, err = c.dictionary(form().Dictionary)
	require.NoError(t, err)
}

func TestCacheBypass(t *testing.T) {
	f, cache := cachedFixture(t, memcachedtest.Start(t))
	large := strings.Repeat("x", memcached.MaxItemBytes)
	f.put("large", large)
	f.put("small", "x")
	c := f.ready()
	waitStats(t, cache, "the small one is loaded", func(s CacheStats) bool { return s.Loaded == 1 })
	requireDocument(t, c, "large", large)
	_, answers, err := c.GetMany(nil, [][]byte{[]byte("large"), []byte("small")}, docservice.MaxReplyBytes)
	require.NoError(t, err)
	require.Len(t, answers[0].Document, len(large))
	require.Equal(t, "x", string(answers[1].Document))
	stats := cache.Stats()
	require.EqualValues(t, 1, stats.Hits)
	require.Zero(t, stats.Misses+stats.Refused)
	// A scan would evict frequently read documents.
	require.Len(t, scanAll(t, c, docservice.ScanOptions{}), 2)
	require.Equal(t, stats, cache.Stats())
}

// Expired documents are removed from the cache, too.
func TestCacheAndExpiry(t *testing.T) {
	f, cache := cachedFixture(t, memcachedtest.Start(t))
	f.clock.now = time.Now()
	_, err := f.queueWriter().Put(queue.Record{ID: []byte("1"), Document: []byte("x"), Expires: f.clock.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	waitStats(t, cache, "it is loaded", func(s CacheStats) bool { return s.Loaded == 1 })
	requireDocument(t, c, "1", "x")
	require.EqualValues(t, 1, cache.Stats().Hits)
	f.clock.advance(2 * time.Hour)
	requireNone(t, c, "1", docservice.ErrNotFound)
	require.EqualValues(t, 1, cache.Stats().Hits)
}

// A server that accepts nothing delays neither the tail nor fetches; excess loads are
// dropped.
func TestCacheLoadsAreBounded(t *testing.T) {
	server := memcachedtest.Start(t)
	cache, err := OpenCache([]string{server.Address}, &memcached.Options{Timeout: time.Hour, FirstPause: time.Hour})
	require.NoError(t, err)
	defer cache.Close()
	server.Signal(syscall.SIGSTOP)
	f := newMemFixture(t)
	f.options.Cache = cache
	f.putMany("a", maxWaitingLoads+1000)
	c := f.ready()
	require.GreaterOrEqual(t, cache.Stats().Dropped, uint64(999))
	server.Kill() // or the current load would wait for an hour
	require.NoError(t, c.Close())
}

// Servers are killed and return empty while documents change and are read: every answer is
// a version that was current.
func TestCacheServersRestart(t *testing.T) {
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	f, cache := cachedFixture(t, servers...)
	f.putMany("a", 100)
	c := f.ready()
	var version atomic.Int64 // of the document "v": at least this one is in the index
	stop := make(chan struct{})
	var running sync.WaitGroup
	for caller := range 4 {
		running.Go(func() {
			for i := caller; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint("a-", i%100)
				got, err := c.Get(nil, []byte(id))
				if !assert.NoError(t, err) || !assert.Equal(t, documentOf(id), string(got)) {
					return
				}
				least := version.Load()
				_, answers, err := c.GetMany(nil, [][]byte{[]byte("v"), []byte(id)}, docservice.MaxReplyBytes)
				if !assert.NoError(t, err) || least == 0 {
					continue
				}
				var got64 int64
				_, err = fmt.Sscan(string(answers[0].Document), &got64)
				assert.NoError(t, err)
				assert.GreaterOrEqual(t, got64, least)
				assert.Equal(t, documentOf(id), string(answers[1].Document))
			}
		})
	}
	next := int64(0)
	change := func() {
		for range 20 {
			next++
			require.NoError(t, c.WaitFor(soon(t), f.put("v", fmt.Sprint(next))))
			version.Store(next)
		}
	}
	for i := range 4 {
		change()
		servers[i%2].Kill()
		waitStats(t, cache, "one is marked as down", func(s CacheStats) bool { change(); return s.ServersUp == 1 })
		servers[i%2].Restart()
		waitStats(t, cache, "both are up", func(s CacheStats) bool { return s.ServersUp == 2 })
	}
	hits := cache.Stats().Hits
	waitStats(t, cache, "it serves again", func(s CacheStats) bool { return s.Hits > hits+100 })
	close(stop)
	running.Wait()
	require.Zero(t, cache.Stats().Wrong)
}

// BenchmarkCache measures a Get and a batch without a cache, with a cache that holds all
// documents, and with one whose server is down.
func BenchmarkCache(b *testing.B) {
	const documents = 20_000
	for _, state := range []string{"none", "up", "down"} {
		f := newFixture(b, vfs.OS, b.TempDir())
		f.putMany("a", documents)
		f.seal()
		if state != "none" {
			server := memcachedtest.Start(b, "-m", "256")
			f.options.Cache = newCache(b, server)
			if state == "down" {
				server.Kill()
			}
		}
		c := f.ready()
		if state == "down" {
			waitStats(b, f.options.Cache, "it is marked as down", func(s CacheStats) bool {
				_, err := c.Get(nil, []byte("a-1"))
				require.NoError(b, err)
				return s.ServersUp == 0
			})
		}
		var ids [][]byte
		for i := range documents {
			ids = append(ids, []byte(fmt.Sprint("a-", i*7919%documents)))
		}
		for _, size := range []int{1, 50} {
			b.Run(fmt.Sprintf("memcached=%s/batch=%d", state, size), func(b *testing.B) {
				b.ReportAllocs()
				var dst []byte
				var err error
				for i := 0; b.Loop(); i++ {
					from := i * size % (documents - size)
					if size == 1 {
						dst, err = c.Get(dst[:0], ids[from])
					} else {
						dst, _, err = c.GetMany(dst[:0], ids[from:from+size], docservice.MaxReplyBytes)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "documents/s")
			})
		}
		require.NoError(b, c.Close())
	}
}
