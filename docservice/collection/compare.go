package collection

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// CompareMemory is the memory for which CompareIndex is made: 2.7 million ids in a pass.
const CompareMemory = 256 << 20

// compareBytesPerID bounds the memory of an id in comparer.newest.
const compareBytesPerID = 100

// maxComparisonExamples limits Comparison.Examples.
const maxComparisonExamples = 10

// Comparison is the result of CompareIndex, in ids.
type Comparison struct {
	Equal int64 `json:"equal"` // the index has the newest document of the queue
	// Later ids were not compared, because the queue has entries that the index has not read.
	Later   int64 `json:"later"`
	Missing int64 `json:"missing"` // the queue has a document, and the index has none
	Wrong   int64 `json:"wrong"`   // the index has another version than the newest
	Extra   int64 `json:"extra"`   // the index has a document, and the queue has none
	// Examples describe some of the differences.
	Examples []string `json:"examples,omitempty"`
}

// Differences returns the number of ids that differ.
func (c Comparison) Differences() int64 { return c.Missing + c.Wrong + c.Extra }

// CompareIndex compares each entry of the served index in dir with the queue in queueDir:
// address and expiry of the newest version of every id. The collection may be open.
// It reads the tables of the whole queue and the whole index once for each part of the ids
// that fits into memoryBytes, and no documents. It calls progress, unless it is nil, with the
// bytes of the documents whose entries were read and those of all that will be.
func CompareIndex(ctx context.Context, dir, queueDir string, now time.Time, memoryBytes int64, progress func(done, total int64)) (Comparison, error) {
	return compareIndex(ctx, vfs.OS, dir, queueDir, now, memoryBytes, progress)
}

func compareIndex(ctx context.Context, files vfs.FS, dir, queueDir string, now time.Time, memoryBytes int64, progress func(done, total int64)) (Comparison, error) {
	numbers, err := listIndexes(files, dir)
	if err != nil || len(numbers) == 0 {
		return Comparison{}, errors.CombineErrors(err, errors.Newf("%s holds no index", dir))
	}
	reader, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: files})
	if err != nil {
		return Comparison{}, err
	}
	c := comparer{ctx: ctx, queue: reader, now: now, progress: progress}
	err = withIndex(numbers[0].path(dir), &lsm.Options{FS: files, ReadOnly: true}, func(index *lsm.DB) error {
		c.index = index
		return c.run(memoryBytes)
	})
	return c.result, errors.CombineErrors(err, reader.Close())
}

// comparer is a CompareIndex in progress.
type comparer struct {
	ctx    context.Context
	queue  *queue.Reader
	index  *lsm.DB
	now    time.Time
	end    queue.Address // of the part of the queue that the index has read
	behind bool          // the queue has later entries
	// unsettled: the collection is about to remove stale entries of these segments.
	unsettled unsettled
	result    Comparison

	progress func(done, total int64) // nil: none
	read     int                     // entries of queue and index
	bytes    int64                   // of the documents of all entries of the queue
	done     int64                   // see CompareIndex
	passEnd  int64                   // done at the end of the pass

	pass, passes uint32
	newest       map[idHash]newestEntry
}

// idHash identifies an id: a part of its SHA-256, so that collisions are infeasible.
type idHash [16]byte

// newestEntry is the newest entry of an id in the queue.
type newestEntry struct {
	indexEntry
	deleted bool
}

func (c *comparer) run(memoryBytes int64) error {
	state, err := readIndexState(c.index)
	if err != nil {
		return err
	}
	c.end, c.unsettled = state.position.Next, state.unsettled
	segments, err := c.queue.Segments()
	if err != nil {
		return err
	}
	var entries int64
	for _, s := range segments {
		entries += s.Entries
		c.bytes += s.StoredBytes
	}
	c.passes = uint32(min(entries*compareBytesPerID/memoryBytes+1, math.MaxUint32))
	for c.pass = range c.passes {
		n := int64(c.pass + 1)
		c.passEnd = n*c.bytes + n*c.bytes/int64(c.passes)
		if err := c.readQueue(); err != nil {
			return errors.Wrap(err, "read the queue")
		}
		if err := c.readIndex(); err != nil {
			return errors.Wrap(err, "read the index")
		}
		c.findMissing()
		c.done = c.passEnd
		c.report()
	}
	return nil
}

// reportEntries is the number of entries after which CompareIndex reports its progress.
const reportEntries = 1 << 12

// advance counts an entry, with the size of its document. The entries of the index may have
// more bytes than an equal share of each pass.
func (c *comparer) advance(bytes int64) {
	c.done = min(c.done+bytes, c.passEnd)
	if c.read++; c.read%reportEntries == 0 {
		c.report()
	}
}

// report reports the progress. Each pass reads the whole queue, and its part of the index.
func (c *comparer) report() {
	if total := (int64(c.passes) + 1) * c.bytes; c.progress != nil {
		c.progress(c.done, total)
	}
}

// inPass returns the hash of an id, and whether the id belongs to the pass.
func (c *comparer) inPass(id []byte) (idHash, bool) {
	sum := sha256.Sum256(id)
	return idHash(sum[:16]), binary.LittleEndian.Uint32(sum[16:])%c.passes == c.pass
}

func (c *comparer) readQueue() error {
	c.newest = make(map[idHash]newestEntry)
	return c.queue.Scan(c.ctx, queue.Position{}, func(e queue.Entry) error {
		c.advance(int64(e.StoredBytes))
		c.behind = c.behind || e.Address.Compare(c.end) >= 0
		if hash, ok := c.inPass(e.ID); ok {
			c.newest[hash] = newestEntry{
				indexEntry: entryOf(&e),
				deleted:    e.Deleted,
			}
		}
		return nil
	})
}

// readIndex compares the entries of the index, and removes their ids from newest.
func (c *comparer) readIndex() error {
	it := c.index.NewIter(bounds(&docservice.ScanOptions{}))
	defer func() { _ = it.Close() }() // Err is checked
	for n := 0; it.Next(); n++ {
		if n%(1<<12) == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		hash, ok := c.inPass(it.Key())
		if !ok {
			continue
		}
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			return errors.Wrapf(err, "id %.100q", it.Key())
		}
		c.advance(int64(entry.place.StoredBytes()))
		newest, known := c.newest[hash]
		delete(c.newest, hash)
		c.compare(it.Key(), entry, newest, known)
	}
	return it.Err()
}

// compare compares an entry of the index with the newest entry of the queue, if there is
// one.
func (c *comparer) compare(id []byte, entry indexEntry, newest newestEntry, known bool) {
	switch {
	case known && newest.address.Compare(c.end) >= 0:
		c.result.Later++
	case !known && entry.expired(c.now):
		// A compaction has dropped the document; the sweep will remove the entry.
	case !known && c.behind:
		c.result.Later++ // a compaction may have dropped it with a later delete
	case !known && c.unsettled.holds(entry.address):
		// The collection does not serve the entry, and will remove it.
	case !known:
		c.differ(&c.result.Extra, "id %.100q: the index has %s, the queue has no entry", id, entry.address)
	case newest.deleted && newest.address == entry.address && entry.expired(c.now):
		// A compaction has kept the expired document as a delete; the sweep will remove the entry.
	case newest.deleted:
		c.differ(&c.result.Extra, "id %.100q: the index has %s, the document was deleted at %s", id, entry.address, newest.address)
	case !entry.sameDocument(newest.indexEntry):
		c.differ(&c.result.Wrong, "id %.100q: the index has %s, expiry %d; the queue has %s, expiry %d", id,
			entry.address, entry.expiry, newest.address, newest.expiry)
	default:
		c.result.Equal++
	}
}

// findMissing counts the documents of the queue that the index does not have.
func (c *comparer) findMissing() {
	for _, newest := range c.newest {
		switch {
		case newest.address.Compare(c.end) >= 0:
			c.result.Later++
		case !newest.deleted && !newest.expired(c.now):
			c.differ(&c.result.Missing, "document %s: the index has no entry", newest.address)
		}
	}
}

// differ counts a difference.
func (c *comparer) differ(count *int64, format string, args ...any) {
	*count++
	if len(c.result.Examples) < maxComparisonExamples {
		c.result.Examples = append(c.result.Examples, fmt.Sprintf(format, args...))
	}
}
