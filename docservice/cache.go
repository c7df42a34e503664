package docservice

import (
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice/memcached"
	"docstore/lsm"
	"docstore/queue"
)

// maxWaitingLoads is how many documents may wait to be put into a server, for
// each; more are dropped, and counted.
const maxWaitingLoads = 8192

// maxCacheBatchBytes bounds what is asked of the cache at once: the documents of
// a batch behind it are read from the segments.
const maxCacheBatchBytes = 8 << 20

// storedHeaderRoom is what a value has besides the stored bytes.
const storedHeaderRoom = 64

// Cache keeps documents of the collections of a process in memcached servers,
// which others may share. A collection that has one in its options puts each
// document into it as it tails the queue, asks it first, and reads the segment
// where it has no answer.
//
// The key is the queue's id and the document's address in hex. What lies at an
// address never changes, so nothing that is found can be out of date, whoever has
// put it there and whenever. The value is the document's stored form, whose
// checksum covers address and id: a wrong value counts as none, is counted in
// CacheStats.Wrong, and is replaced. The version before goes when another comes
// or the id is deleted; one that was missed goes when the server needs the room.
//
// Documents too long for an item (memcached.MaxItemBytes) bypass it. So do scans,
// which would push out what is asked for often.
type Cache struct {
	servers *memcached.Servers
	waiting []chan cacheLoad // for each server
	alive   chan struct{}    // closed by Close
	closing sync.Once
	running sync.WaitGroup

	hits, misses, wrong, loaded, dropped atomic.Uint64
}

// cacheLoad is a document to be put into a server, or taken out of it.
type cacheLoad struct {
	store  *store
	id     string
	entry  indexEntry
	remove bool
}

// CacheStats count since the cache was opened.
type CacheStats struct {
	Hits   uint64 // documents that it had
	Misses uint64 // that it had not, while the server was up
	Wrong  uint64 // that were not what they should be
	Loaded uint64 // put into it
	// Dropped were not put into it or taken out of it, because too many were
	// waiting.
	Dropped uint64
	Refused uint64 // a server did not take them
	// ServersUp of Servers are in use.
	ServersUp, Servers int
}

// OpenCache returns a cache in the memcached servers at the addresses, host:port
// each. They need not be there. The logger, which may be nil, is told when they
// come and go.
func OpenCache(addresses []string, logger *slog.Logger) (*Cache, error) {
	return openCache(addresses, &memcached.Options{Logger: logger})
}

func openCache(addresses []string, opts *memcached.Options) (*Cache, error) {
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

// Stats tells how the cache is doing.
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

// cacheable tells whether the document fits into an item.
func (e indexEntry) cacheable() bool {
	return uint64(e.storedBytes)+storedHeaderRoom <= memcached.MaxItemBytes
}

// cacheServer is the server that keeps a document of this collection. There is none
// for one that bypasses the cache, or while the server is away.
func (s *store) cacheServer(entry indexEntry) (server int, ok bool) {
	id := s.queueID.Load()
	if id == nil || !entry.cacheable() {
		return 0, false
	}
	at := entry.address
	hash := binary.LittleEndian.Uint64(id[:]) ^ uint64(at.Segment)<<32 ^ uint64(at.Block) ^ uint64(at.Index)<<48
	server = s.options.Cache.servers.Server(hash)
	return server, s.options.Cache.servers.Up(server)
}

// cacheKey is the key of a document for which there is a server.
func (s *store) cacheKey(entry indexEntry) string {
	var b [26]byte
	copy(b[:], s.queueID.Load()[:])
	binary.BigEndian.PutUint32(b[16:], uint32(entry.address.Segment))
	binary.BigEndian.PutUint32(b[20:], entry.address.Block)
	binary.BigEndian.PutUint16(b[24:], entry.address.Index)
	return hex.EncodeToString(b[:])
}

// getCached is fetch for a document that may be in the cache.
func (s *store) getCached(dst, id []byte, entry indexEntry, take queue.CodecSet) (_ []byte, asStored bool, _ error) {
	server, ok := s.cacheServer(entry)
	if !ok || s.unsettled.Load().holds(entry.address) {
		return s.fetch(dst, id, entry, take)
	}
	value, ok := s.options.Cache.servers.Get(server, s.cacheKey(entry))
	if !ok {
		s.options.Cache.misses.Add(1)
	}
	return s.fetchCached(dst, id, entry, take, value)
}

// fetchCached is fetch for a document of which the cache has said what it has,
// nil for nothing.
func (s *store) fetchCached(dst, id []byte, entry indexEntry, take queue.CodecSet, cached []byte) (_ []byte, asStored bool, _ error) {
	cache := s.options.Cache
	if cached != nil && !entry.expired(s.options.Now()) {
		if out, asStored, ok := s.fromCache(dst, id, entry, take, cached); ok {
			cache.hits.Add(1)
			s.collection.gets.found.Add(1)
			return out, asStored, nil
		}
		cache.wrong.Add(1)
	}
	out, asStored, err := s.fetch(dst, id, entry, take)
	if err == nil {
		cache.enqueue(cacheLoad{store: s, id: string(id), entry: entry})
	}
	return out, asStored, err
}

// fromCache appends a document of which the cache has the value. It trusts the
// value in nothing: if it is not this document, there is none.
func (s *store) fromCache(dst, id []byte, entry indexEntry, take queue.CodecSet, value []byte) (_ []byte, asStored, ok bool) {
	stored, err := queue.ParseStored(value, id)
	if err != nil || stored.Address != entry.address {
		return dst, false, false
	}
	if take != 0 && stored.Within(take) {
		return append(dst, value...), true, true
	}
	out, err := s.decoders.Decode(s.alive, dst, stored)
	return out, false, err == nil
}

// enqueue puts a load behind those that wait.
func (c *Cache) enqueue(load cacheLoad) {
	server, ok := load.store.cacheServer(load.entry)
	if !ok {
		return
	}
	select {
	case c.waiting[server] <- load:
	default:
		c.dropped.Add(1)
	}
}

// load puts documents into a server and takes them out of it, in the order in
// which they were enqueued.
func (c *Cache) load(server int) {
	var value []byte
	for {
		var load cacheLoad
		select {
		case load = <-c.waiting[server]:
		case <-c.alive:
			return
		}
		key := load.store.cacheKey(load.entry)
		if load.remove {
			c.servers.Delete(server, key)
			continue
		}
		var asStored bool
		var err error
		value, asStored, err = load.store.queue.StoredFor(value[:0], []byte(load.id), load.entry.address, anyCodec)
		if err != nil || !asStored {
			continue // whoever asks for it is told why
		}
		var until time.Time
		if load.entry.expiry != 0 {
			until = time.Unix(int64(load.entry.expiry), 0)
		}
		if c.servers.Set(server, key, value, until) {
			c.loaded.Add(1)
		}
		if load.store.isSuperseded(load) {
			// Its removal may have come before: nobody would ask for it, but what
			// was deleted is not to stay.
			c.servers.Delete(server, key)
		}
	}
}

// isSuperseded tells whether the index has another document for the id, or none.
func (s *store) isSuperseded(load cacheLoad) bool {
	entry, err := s.lookUp([]byte(load.id))
	if err != nil {
		return errors.Is(err, lsm.ErrNotFound)
	}
	return entry.address != load.entry.address
}

// anyCodec takes documents as they are stored whether or not this build could
// decode them.
const anyCodec = ^queue.CodecSet(0)

// cachedBefore returns the entry that the index has for an id, for its document
// to be taken out of the cache.
func (s *store) cachedBefore(id []byte) (indexEntry, bool) {
	entry, err := s.lookUp(id)
	return entry, err == nil
}
