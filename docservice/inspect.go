package docservice

import (
	"bytes"
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// Location is where a document is, as the index has it.
type Location struct {
	Address     queue.Address
	StoredBytes int       // compressed
	Expires     time.Time // zero: never
	Expired     bool
}

// Locate tells where the document with the id is, without reading it. It fails
// like Get, but for the damage that only reading finds, and counts as no fetch.
// A document that has expired is located as long as its entry is there.
func (c *Collection) Locate(id []byte) (Location, error) {
	return ask(c, func(s *store) (Location, error) { return s.locate(id) })
}

func (s *store) locate(id []byte) (Location, error) {
	if !validIDBytes(len(id)) {
		return Location{}, ErrBadID
	}
	g := s.gap.Load() // before the lookup, as in get
	entry, err := s.lookUp(id)
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return Location{}, absence(noEntry, g)
	case errors.Is(err, lsm.ErrClosed):
		return Location{}, ErrClosed
	case err != nil:
		return Location{}, unavailable(err)
	}
	l := Location{Address: entry.address, StoredBytes: int(entry.storedBytes)}
	if entry.expiry != 0 {
		l.Expires, l.Expired = time.Unix(int64(entry.expiry), 0), entry.expired(s.options.Now())
	}
	return l, nil
}

// Version is what the queue says of an id at one moment.
type Version struct {
	Address     queue.Address
	Appended    time.Time
	Deleted     bool
	Expires     time.Time // zero: never
	StoredBytes int
}

// Versions calls fn for each version of the id that the segments here hold, oldest
// first, deletes among them. It reads the tables of the whole queue, no documents:
// some seconds for each ten million of them, which only a person may ask for. It
// returns the first error of fn, that of ctx, or queue.Reader.Scan's.
func (c *Collection) Versions(ctx context.Context, id []byte, fn func(Version) error) error {
	return c.serving.Load().queue.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
		if !bytes.Equal(e.ID, id) {
			return nil
		}
		return fn(Version{Address: e.Address, Appended: e.Appended, Deleted: e.Deleted, Expires: e.Expires, StoredBytes: e.StoredBytes})
	})
}

// Segments describes the segments that are here, in order. It reads each one's
// footer.
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

// FilterPages is that of the index.
func (c *Collection) FilterPages() []lsm.TableFilter { return c.serving.Load().index.FilterPages() }

// IndexStats is that of the index.
func (c *Collection) IndexStats() lsm.Stats { return c.serving.Load().index.Stats() }

// Dirs are the directories of the collection: "queue" and "index".
func (c *Collection) Dirs() map[string]string {
	return map[string]string{"queue": c.queueDir, "index": c.dir}
}
