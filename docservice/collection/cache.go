package collection

import (
	"encoding/binary"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice/memcached"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// maxWaitingLoads is the maximum number of loads queued for one server. Further loads are
// dropped and counted.
const maxWaitingLoads = 8192

// maxCacheBatchBytes limits the documents requested from the cache at once. The remaining
// documents of a batch are read from the segments.
const maxCacheBatchBytes = 8 << 20

// storedHeaderRoom is the maximum size of a value apart from the stored bytes.
const storedHeaderRoom = 64

// Cache keeps documents of the collections of a process in memcached servers, which other
// processes may share. A collection with a cache stores each document in it while tailing
// the queue, reads from it first, and reads the segment on a miss.
//
// The key is the queue's id and the document's address in hex. The value is the document's
// stored form. It counts if its checksum, which covers address and id, is that in the index:
// servers may hold documents of another history of the queue. A wrong value is treated as a
// miss, counted in CacheStats.Wrong, and replaced. When an id is overwritten or deleted, its
// previous version is removed from the cache; a version whose removal was dropped stays until
// the server evicts it. A collection does not use the cache while it is unknown whether the
// queue has the documents of the index: after a truncation or a fork, and until the tail has
// compared both.
//
// Documents larger than an item (memcached.MaxItemBytes) bypass the cache. So do scans,
// which would evict frequently read documents.
type Cache struct {
	servers *memcached.Servers
	waiting []chan cacheLoad // for each server
	alive   chan struct{}    // closed by Close
	closing sync.Once
	running sync.WaitGroup

	hits, misses, wrong, loaded, dropped atomic.Uint64
}

// cacheLoad stores a document in a server or deletes it.
type cacheLoad struct {
	reader *reader
	id     string
	entry  indexEntry
	remove bool
}

// CacheStats are counters since the cache was opened.
type CacheStats struct {
	Hits   uint64 // documents found
	Misses uint64 // documents not found while the server was up
	Wrong  uint64 // values that did not match the document, or need a dictionary that is not here
	Loaded uint64 // documents stored
	// Dropped counts stores and deletes dropped because the queue of the server was full.
	Dropped uint64
	Refused uint64 // documents that a server refused to store
	// ServersUp of Servers are in use.
	ServersUp, Servers int
}

// OpenCache returns a cache in the memcached servers at the addresses, host:port each. It
// succeeds even if no server is reachable. The options may be nil.
func OpenCache(addresses []string, opts *memcached.Options) (*Cache, error) {
	servers, err := memcached.New(addresses, opts)
	if err != nil {
		return nil, err
	}
	c := &Cache{servers: servers, alive: make(chan struct{})}
	for range servers.Len() {
		c.waiting = append(c.waiting, make(chan cacheLoad, maxWaitingLoads))
	}
	for server := range servers.Len() {
		c.running.Go(func() { c.load(server) })
	}
	return c, nil
}

// Close closes the connections. The collections that use the cache must have
// been closed.
func (c *Cache) Close() error {
	c.closing.Do(func() { close(c.alive) })
	c.running.Wait()
	return c.servers.Close()
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats {
	stats := CacheStats{
		Hits: c.hits.Load(), Misses: c.misses.Load(), Wrong: c.wrong.Load(),
		Loaded: c.loaded.Load(), Dropped: c.dropped.Load(), Refused: c.servers.Refused(),
		Servers: c.servers.Len(),
	}
	for i := range stats.Servers {
		if c.servers.Up(i) {
			stats.ServersUp++
		}
	}
	return stats
}

// cacheable reports whether the document fits into an item, and its checksum is known.
func (e indexEntry) cacheable() bool {
	return e.place != (queue.Place{}) && e.place.StoredBytes()+storedHeaderRoom <= memcached.MaxItemBytes
}

// cacheServer returns the server for a document of this collection. ok is false if the
// document bypasses the cache or the server is down.
func (r *reader) cacheServer(entry indexEntry) (server int, ok bool) {
	id := r.queueID.Load()
	if id == nil || !entry.cacheable() || !r.health.continues.Load() {
		return 0, false
	}
	at := entry.address
	hash := binary.LittleEndian.Uint64(id[:]) ^ uint64(at.Segment)<<32 ^ uint64(at.Block) ^ uint64(at.Index)<<48
	server = r.options.Cache.servers.Server(hash)
	return server, r.options.Cache.servers.Up(server)
}

// cacheKey returns the key of a cacheable document.
func (r *reader) cacheKey(entry indexEntry) string {
	var b [26]byte
	copy(b[:], r.queueID.Load()[:])
	binary.BigEndian.PutUint32(b[16:], uint32(entry.address.Segment))
	binary.BigEndian.PutUint32(b[20:], entry.address.Block)
	binary.BigEndian.PutUint16(b[24:], entry.address.Index)
	return hex.EncodeToString(b[:])
}

// getCached is fetch for a document that may be in the cache. Its address is settled.
func (r *reader) getCached(dst, id []byte, entry indexEntry, accept codec.Set) (_ []byte, asStored bool, _ error) {
	server, ok := r.cacheServer(entry)
	if !ok {
		return r.fetch(dst, id, entry, accept)
	}
	value, ok := r.options.Cache.servers.Get(server, r.cacheKey(entry))
	if !ok {
		r.options.Cache.misses.Add(1)
	}
	return r.fetchCached(dst, id, entry, accept, value)
}

// fetchCached is fetch for a document whose value in the cache is cached, nil if it has
// none.
func (r *reader) fetchCached(dst, id []byte, entry indexEntry, accept codec.Set, cached []byte) (_ []byte, asStored bool, _ error) {
	cache := r.options.Cache
	if cached != nil && !entry.expired(r.options.Now()) {
		if out, asStored, ok := r.fromCache(dst, id, entry, accept, cached); ok {
			cache.hits.Add(1)
			r.collection.gets.found.Add(1)
			return out, asStored, nil
		}
		cache.wrong.Add(1)
	}
	out, asStored, err := r.fetch(dst, id, entry, accept)
	if err == nil {
		cache.enqueue(cacheLoad{reader: r, id: string(id), entry: entry})
	}
	return out, asStored, err
}

// fromCache appends the document of a value of the cache. The value is not trusted: ok is
// false unless it decodes to the document of this id and address with a dictionary that is here.
func (r *reader) fromCache(dst, id []byte, entry indexEntry, accept codec.Set, value []byte) (_ []byte, asStored, ok bool) {
	form, err := stored.Parse(value, id)
	if err != nil || form.Address != entry.address || !entry.place.Matches(&form) {
		return dst, false, false
	}
	if accept != 0 && form.Within(accept) {
		// Compaction may have encoded the documents here again, with another dictionary.
		return append(dst, value...), true, r.queue.HasDictionary(entry.address, form.Dictionary)
	}
	out, err := r.decoders.Decode(r.health.alive, dst, form)
	return out, false, err == nil
}

// enqueue adds a load to the queue of its server.
func (c *Cache) enqueue(load cacheLoad) {
	server, ok := load.reader.cacheServer(load.entry)
	if !ok {
		return
	}
	select {
	case c.waiting[server] <- load:
	default:
		c.dropped.Add(1)
	}
}

// load stores and deletes the documents of one server in the order in which they were
// enqueued.
func (c *Cache) load(server int) {
	var value []byte
	for {
		var load cacheLoad
		select {
		case load = <-c.waiting[server]:
		case <-c.alive:
			return
		}
		key := load.reader.cacheKey(load.entry)
		if load.remove {
			c.servers.Delete(server, key)
			continue
		}
		var asStored bool
		var err error
		value, asStored, err = load.reader.queue.StoredFor(value[:0], load.entry.wanted([]byte(load.id)), anyCodec)
		if err != nil || !asStored {
			continue // it was encoded again since it was indexed, or a fetch reports the error
		}
		var until time.Time
		if load.entry.expiry != 0 {
			until = time.Unix(int64(load.entry.expiry), 0)
		}
		if c.servers.Set(server, key, value, until) {
			c.loaded.Add(1)
		}
		if load.reader.isSuperseded(load) {
			// The delete of this version may have run before the store. Delete it again: a
			// deleted document must not stay in the cache.
			c.servers.Delete(server, key)
		}
	}
}

// isSuperseded reports whether the index has another document for the id, or none.
func (r *reader) isSuperseded(load cacheLoad) bool {
	entry, err := r.lookUp([]byte(load.id))
	if err != nil {
		return errors.Is(err, lsm.ErrNotFound)
	}
	return entry.address != load.entry.address
}

// anyCodec accepts every stored form, whether or not this build can decode it.
const anyCodec = ^codec.Set(0)

// cachedBefore returns the index entry of an id whose cached document is to be deleted.
func (r *reader) cachedBefore(id []byte) (indexEntry, bool) {
	entry, err := r.lookUp(id)
	return entry, err == nil
}
