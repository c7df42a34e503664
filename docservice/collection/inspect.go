package collection

import (
	"bytes"
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/docservice/internal/wire"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/stored"
)

// Location is the address and size of a document according to the index.
type Location struct {
	Address     queue.Address
	StoredBytes int       // compressed
	Expires     time.Time // zero: never
	Expired     bool
}

// Locate returns the location of the document with the id without reading it. It fails like
// Get, except for damage that only a read detects, and is not counted as a get. An expired
// document is located as long as the index has its entry.
func (c *Collection) Locate(id []byte) (Location, error) {
	return ask(c, func(s *store) (Location, error) { return s.reader.locate(id) })
}

func (r *reader) locate(id []byte) (Location, error) {
	if !wire.ValidIDBytes(len(id)) {
		return Location{}, docservice.ErrBadID
	}
	g := r.health.gap.Load() // before the lookup, as in get
	unsettled := r.unsettled.Load()
	entry, err := r.lookUp(id)
	if err == nil && unsettled.holds(entry.address) {
		if entry, err = r.existing(id, entry); err != nil {
			return Location{}, err
		}
	}
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return Location{}, absence(noEntry, g)
	case errors.Is(err, lsm.ErrClosed):
		return Location{}, ErrClosed
	case err != nil:
		return Location{}, unavailable(err)
	}
	l := Location{Address: entry.address, StoredBytes: entry.place.StoredBytes()}
	if entry.expiry != 0 {
		l.Expires, l.Expired = time.Unix(int64(entry.expiry), 0), entry.expired(r.options.Now())
	}
	return l, nil
}

// CacheState is the state of the document of an id in the cache.
type CacheState string

// States of a document in the cache.
const (
	CacheNone     CacheState = "" // there is no cache, or no document
	CacheHit      CacheState = "hit"
	CacheMiss     CacheState = "miss"
	CacheWrong    CacheState = "wrong"    // not the document of the index, for example an older version: it is not used
	CacheBypassed CacheState = "bypassed" // the document is too large or not settled, or its server is down
)

// CacheState returns the state of the document with the id. It reads no segment, and counts nothing.
func (c *Collection) CacheState(id []byte) CacheState {
	return c.serving.Load().reader.cacheState(id)
}

func (r *reader) cacheState(id []byte) CacheState {
	cache, unsettled := r.options.Cache, r.unsettled.Load()
	if cache == nil || !wire.ValidIDBytes(len(id)) {
		return CacheNone
	}
	entry, err := r.lookUp(id)
	if err != nil {
		return CacheNone
	}
	server, ok := r.cacheServer(entry)
	if !ok || unsettled.holds(entry.address) {
		return CacheBypassed
	}
	value, ok := cache.servers.Get(server, r.cacheKey(entry))
	if !ok {
		return CacheMiss
	}
	form, err := stored.Parse(value, id)
	if err != nil || form.Address != entry.address || !entry.place.Matches(&form) {
		return CacheWrong
	}
	return CacheHit
}

// Version is one version of a document in the queue.
type Version struct {
	Address     queue.Address
	Appended    time.Time
	Deleted     bool
	Expires     time.Time // zero: never
	StoredBytes int
}

// Versions calls fn for each version of the id that the segments here hold, deletes
// included, oldest first. It reads the tables of the whole queue but no documents: a few
// seconds for every ten million documents. Use it for inspection only. It returns the first
// error of fn, of ctx, or of queue.Reader.Scan.
func (c *Collection) Versions(ctx context.Context, id []byte, fn func(Version) error) error {
	return c.serving.Load().queue.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
		if !bytes.Equal(e.ID, id) {
			return nil
		}
		return fn(Version{Address: e.Address, Appended: e.Appended, Deleted: e.Deleted, Expires: e.Expires, StoredBytes: e.StoredBytes})
	})
}

// VersionDocument appends the document of a version of the id, which Versions found, to dst.
// Its errors are those of queue.Reader.DocumentFor: the segment may have been removed or
// compacted since.
func (c *Collection) VersionDocument(dst, id []byte, v Version) ([]byte, error) {
	return c.serving.Load().queue.DocumentFor(dst, id, v.Address)
}

// Segments describes the segments in the queue's directory, in order. It reads the footer
// of each.
func (c *Collection) Segments() ([]queue.SegmentInfo, error) {
	return ask(c, (*store).segments)
}

func (s *store) segments() ([]queue.SegmentInfo, error) {
	segments, err := s.queue.Segments()
	if errors.Is(err, queue.ErrClosed) {
		return nil, ErrClosed
	}
	return segments, errors.Wrapf(err, "collection %s", s.collection.name)
}

// FilterPages returns the filter pages of the index.
func (c *Collection) FilterPages() []lsm.TableFilter { return c.serving.Load().index.FilterPages() }

// IndexStats returns the statistics of the index.
func (c *Collection) IndexStats() lsm.Stats { return c.serving.Load().index.Stats() }

// Dirs returns the directories of the collection: "queue" and "index".
func (c *Collection) Dirs() map[string]string {
	return map[string]string{"queue": c.queueDir, "index": c.dir}
}
