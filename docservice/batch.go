package docservice

import (
	"slices"

	"docstore/queue"
)

// MaxBatchIDs is how many ids may be asked for at once.
const MaxBatchIDs = 1 << 14

// batchWindow is how many documents are read in the order of their addresses:
// a usual batch as a whole, and of a huge one no more at a time than may be
// read for nothing when the bytes allowed run out.
const batchWindow = 1024

// Answer is what there is to say about one id of a batch.
type Answer struct {
	Document []byte // if Err is nil
	Err      error  // as of Get

	asStored bool // Document is in its stored form
}

// getMany is Collection.getMany.
func (s *store) getMany(dst []byte, ids [][]byte, take queue.CodecSet, maxBytes int, tell stages) ([]byte, []Answer, error) {
	if len(ids) > MaxBatchIDs {
		return dst, nil, ErrBatchTooLarge
	}
	b := batch{
		store:    s,
		ids:      ids,
		entries:  make([]batchEntry, len(ids)),
		cache:    s.options.Cache,
		take:     take,
		start:    len(dst),
		maxBytes: maxBytes,
		dst:      dst,
	}
	end := tell.begin(StageIndex)
	err := b.lookUp()
	end()
	if err != nil {
		return dst, nil, s.answer(err, queue.Address{})
	}
	end = tell.begin(StageSegment)
	answered := b.readAll()
	end()
	return b.dst, b.answers(answered), nil
}

// batch is a GetMany under way.
type batch struct {
	store    *store
	ids      [][]byte
	entries  []batchEntry // one for each id
	order    []int        // scratch: the ids of a window, sorted by address
	cache    *Cache       // nil: only the segments are read
	take     queue.CodecSet
	dst      []byte
	start    int // where the documents begin in dst
	maxBytes int
}

// batchEntry is what is known of one id.
type batchEntry struct {
	indexEntry
	err        error // of the look-up, then of the fetch
	start, end int   // of the document in dst
	asStored   bool
	asked      bool   // the cache has been asked for it
	cached     []byte // what it has
}

// lookUp asks the index for all ids.
func (b *batch) lookUp() error {
	followed := b.store.following.Load() // before the look-up: see absent
	return b.store.index.MultiGet(b.ids, func(i int, value []byte, err error) error {
		entry := &b.entries[i]
		if !validIDBytes(len(b.ids[i])) {
			err = ErrBadID
		}
		if err == nil {
			entry.indexEntry, err = decodeIndexEntry(value)
		}
		if err != nil {
			entry.err = b.store.answer(absent(err, followed), queue.Address{})
		}
		return nil
	})
}

// readAll reads the documents of the first ids: one at least, and as many as
// fit. It returns how many.
func (b *batch) readAll() (answered int) {
	for answered < len(b.ids) {
		end := min(answered+batchWindow, len(b.ids))
		if b.cache != nil {
			b.askCache(answered, end)
		}
		if !b.readSorted(answered, end) {
			return b.readInOrder(answered, end)
		}
		answered = end
	}
	return answered
}

// askCache asks the cache for the documents from..to, each server once.
func (b *batch) askCache(from, to int) {
	type question struct {
		keys    []string
		entries map[string]*batchEntry
	}
	var questions map[int]*question // by server
	bytes := 0
	for i := from; i < to && bytes < maxCacheBatchBytes; i++ {
		entry := &b.entries[i]
		if entry.err != nil {
			continue
		}
		server, ok := b.store.cacheServer(entry.indexEntry)
		if !ok || b.store.unsettled.Load().holds(entry.address) {
			continue
		}
		if questions == nil {
			questions = make(map[int]*question)
		}
		q := questions[server]
		if q == nil {
			q = &question{entries: make(map[string]*batchEntry, to-from)}
			questions[server] = q
		}
		key := b.store.cacheKey(entry.indexEntry)
		if q.entries[key] == nil { // an id may occur twice; the second time its segment is read
			q.keys, q.entries[key] = append(q.keys, key), entry
			entry.asked = true
			bytes += int(entry.storedBytes)
		}
	}
	for server, q := range questions {
		found := 0
		b.cache.servers.GetMany(server, q.keys, func(key string, value []byte) {
			if entry := q.entries[key]; entry != nil {
				entry.cached = value
				found++
			}
		})
		b.cache.misses.Add(uint64(max(0, len(q.keys)-found)))
	}
}

// readSorted reads the documents from..to in the order of their addresses. It
// returns false, with nothing read, if they do not fit.
func (b *batch) readSorted(from, to int) bool {
	b.order = b.order[:0]
	for i := from; i < to; i++ {
		b.order = append(b.order, i)
	}
	slices.SortFunc(b.order, func(i, j int) int {
		return b.entries[i].address.Compare(b.entries[j].address)
	})
	before := len(b.dst)
	for _, i := range b.order {
		b.read(i)
		if len(b.dst)-b.start > b.maxBytes {
			b.dst = b.dst[:before]
			return false
		}
	}
	return true
}

// readInOrder reads the documents from..to in the order asked until one does
// not fit, and returns which that is.
func (b *batch) readInOrder(from, to int) int {
	for i := from; i < to; i++ {
		before := len(b.dst)
		b.read(i)
		if i > 0 && len(b.dst)-b.start > b.maxBytes {
			b.dst = b.dst[:before]
			return i
		}
	}
	return to
}

// read appends one document to dst.
func (b *batch) read(i int) {
	entry := &b.entries[i]
	entry.start = len(b.dst)
	switch {
	case entry.err != nil:
	case entry.asked:
		b.dst, entry.asStored, entry.err = b.store.fetchCached(b.dst, b.ids[i], entry.indexEntry, b.take, entry.cached)
	default:
		b.dst, entry.asStored, entry.err = b.store.fetch(b.dst, b.ids[i], entry.indexEntry, b.take)
	}
	entry.end = len(b.dst)
}

// answers are the answers for the first n ids.
func (b *batch) answers(n int) []Answer {
	answers := make([]Answer, n)
	for i := range answers {
		if entry := &b.entries[i]; entry.err != nil {
			answers[i].Err = entry.err
		} else {
			answers[i].Document = b.dst[entry.start:entry.end:entry.end]
			answers[i].asStored = entry.asStored
		}
	}
	return answers
}
