package collection

import (
	"context"
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/internal/wire"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/codec"
)

// batchWindow is the number of ids of a batch that are read from the cache and the segments
// together.
const batchWindow = 1024

// Answer is the result for one id of a batch.
type Answer struct {
	Document []byte // if Err is nil
	Err      error  // as of Get

	AsStored bool // Document is in its stored form
}

// A Receiver encodes the answers of a batch, in the order of the ids. Each answer is
// appended to dst between Begin and End.
type Receiver interface {
	// Reset discards the answers received so far.
	Reset()
	// Begin appends the bytes that precede a document.
	Begin(dst []byte) []byte
	// End completes the answer that begins at start. Its document, in the stored form if
	// asStored, has been appended; if err is not nil there is none. The answer may be
	// discarded, as the last one.
	End(dst []byte, start int, asStored bool, err error) []byte
}

// getMany is Collection.getMany.
func (r *reader) getMany(ctx context.Context, dst []byte, ids [][]byte, accept codec.Set, maxBytes int, trace stages, memory *batchMemory, to Receiver) (_ []byte, answered int, err error) {
	if len(ids) > docservice.MaxBatchIDs {
		return dst, 0, docservice.ErrBatchTooLarge
	}
	memory.entries = slices.Grow(memory.entries[:0], len(ids))[:len(ids)]
	clear(memory.entries)
	b := batch{memory: memory, entries: memory.entries, reader: r, ids: ids, cache: r.options.Cache, accept: accept, to: to, start: len(dst), maxBytes: maxBytes, dst: dst}
	end := trace.begin(StageIndex)
	err = b.lookUp()
	end()
	if err != nil {
		return dst, 0, r.answer(indexError(err), queue.Address{})
	}
	for expected := b.expectedBytes(); ; {
		if accept != 0 {
			if err := budget.Reserve(ctx, b.start+expected); err != nil {
				return dst, 0, err
			}
		}
		end = trace.begin(StageSegment)
		b.dst = slices.Grow(b.dst, expected)
		b.readAll()
		end()
		if b.closed {
			return dst, 0, ErrClosed
		}
		size := len(b.dst) - b.start
		if accept == 0 || size <= expected || budget.TryReserve(ctx, b.start+size) {
			return b.dst, b.answered, nil
		}
		expected = size // an erasure has encoded documents again
		b.discard(dst)
	}
}

// discard discards all answers, so that readAll reads them again.
func (b *batch) discard(dst []byte) {
	b.dst, b.answered = dst, 0
	b.to.Reset()
	for i := range b.entries {
		b.entries[i].asked, b.entries[i].cached = false, nil
	}
}

// batch is a GetMany in progress.
type batch struct {
	memory   *batchMemory
	reader   *reader
	ids      [][]byte
	entries  []batchEntry // one for each id
	cache    *Cache       // nil: none
	accept   codec.Set
	to       Receiver
	dst      []byte
	start    int // where the answers begin in dst
	at       int // where the current answer begins
	maxBytes int // of all answers
	answered int // ids, from the first one on
	closed   bool

	unsettled *unsettled // loaded before the lookup
}

// batchMemory holds the buffers that one batch leaves to the next.
type batchMemory struct {
	entries []batchEntry
	order   []int          // the ids of a window whose documents are read from segments, and its end
	wanted  []queue.Wanted // these documents
}

// forget drops the references to memory that the batch does not own.
func (m *batchMemory) forget() {
	clear(m.entries)
	clear(m.wanted[:cap(m.wanted)]) // earlier windows may have used more
}

// batchEntry is the state of one id.
type batchEntry struct {
	indexEntry
	err    error  // of the index lookup
	asked  bool   // requested from the cache
	cached []byte // the value found there
}

// lookUp looks up all ids in the index.
func (b *batch) lookUp() error {
	g := b.reader.health.gap.Load() // before the lookup, as in get
	b.unsettled = b.reader.unsettled.Load()
	group := b.reader.indexReads.Begin()
	defer group.End(len(b.ids))
	if group.IsCold() {
		b.reader.index.ReadAhead(b.ids)
		group.Yield()
	}
	return b.reader.index.MultiGet(b.ids, func(i int, value []byte, err error) error {
		entry := &b.entries[i]
		switch {
		case !wire.ValidIDBytes(len(b.ids[i])):
			err = docservice.ErrBadID
		case err == nil:
			entry.indexEntry, err = decodeIndexEntry(value)
			err = indexError(err)
		case errors.Is(err, lsm.ErrNotFound):
			err = absence(noEntry, g)
		default:
			err = indexError(err)
		}
		if err != nil {
			entry.err = b.reader.answer(err, queue.Address{})
		}
		return nil
	})
}

// expectedBytes estimates the size of all answers, to grow dst once.
func (b *batch) expectedBytes() int {
	total := 0
	for i := range b.entries {
		total += b.entries[i].place.StoredBytes() + storedHeaderRoom
	}
	return min(total, b.maxBytes)
}

// readAll answers as many of the first ids as fit, and at least one.
func (b *batch) readAll() {
	for from := 0; from < len(b.ids) && b.answered == from; from += batchWindow {
		to := min(from+batchWindow, len(b.ids))
		if b.cache != nil {
			b.askCache(from, to)
		}
		b.readWindow(from, to)
	}
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
		server, ok := b.reader.cacheServer(entry.indexEntry)
		if !ok || b.unsettled.holds(entry.address) {
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
		key := b.reader.cacheKey(entry.indexEntry)
		if q.entries[key] == nil { // an id may occur twice; the second time its segment is read
			q.keys, q.entries[key] = append(q.keys, key), entry
			entry.asked = true
			bytes += entry.place.StoredBytes()
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

// readWindow answers the ids from..to, up to the first whose answer does not fit.
func (b *batch) readWindow(from, to int) {
	order, wanted := b.memory.order[:0], b.memory.wanted[:0]
	for i := from; i < to; i++ {
		if entry := &b.entries[i]; entry.err == nil && !entry.asked && !b.expired(entry) && entry.place != (queue.Place{}) {
			order = append(order, i)
			wanted = append(wanted, entry.wanted(b.ids[i]))
		}
	}
	order = append(order, to)
	b.memory.order, b.memory.wanted = order, wanted
	if !b.readOthers(order[0]) {
		return
	}
	found := uint64(0)
	b.begin()
	group := b.reader.segmentReads.Begin()
	if group.IsCold() {
		b.reader.queue.ReadAhead(wanted)
		group.Yield()
	}
	b.reader.queue.StoredForAll(b.dst, wanted, b.accept, func(n int, dst []byte, asStored bool, err error) ([]byte, bool) {
		if err == nil {
			found++
		} else {
			i := order[n]
			dst, asStored, err = b.reader.fetchOther(dst, b.ids[i], b.entries[i].indexEntry, b.accept, err)
		}
		b.dst = dst
		more := b.end(asStored, err) && b.readOthers(order[n+1])
		b.begin()
		return b.dst, more
	})
	group.End(len(wanted))
	b.dst = b.dst[:b.at] // drop the unfinished answer
	b.reader.collection.gets.found.Add(found)
}

func (b *batch) expired(entry *batchEntry) bool {
	return entry.expiry != 0 && entry.expired(b.reader.options.Now())
}

// readOthers answers the ids before end that are not read from segments, unless the cache
// fails. It returns false if an answer did not fit.
func (b *batch) readOthers(end int) bool {
	for b.answered < end {
		entry, id := &b.entries[b.answered], b.ids[b.answered]
		b.begin()
		var asStored bool
		err := entry.err
		switch {
		case err != nil:
		case entry.asked:
			b.dst, asStored, err = b.reader.fetchCached(b.dst, id, entry.indexEntry, b.accept, entry.cached)
		default: // expired, or without a place
			b.dst, asStored, err = b.reader.fetch(b.dst, id, entry.indexEntry, b.accept)
		}
		if !b.end(asStored, err) {
			return false
		}
	}
	return true
}

// begin starts the next answer.
func (b *batch) begin() {
	b.at = len(b.dst)
	b.dst = b.to.Begin(b.dst)
}

// end completes the current answer. It returns false, and drops the answer, if it does not
// fit.
func (b *batch) end(asStored bool, err error) bool {
	b.closed = b.closed || err != nil && errors.Is(err, ErrClosed)
	b.dst = b.to.End(b.dst, b.at, asStored, err)
	if b.answered > 0 && len(b.dst)-b.start > b.maxBytes {
		b.dst = b.dst[:b.at]
		return false
	}
	b.answered++
	return true
}

// Answers is a Receiver that keeps answers as they are. Its zero value is ready.
type Answers struct {
	ends []int
	list []Answer
}

// Begin implements Receiver.
func (l *Answers) Begin(dst []byte) []byte { return dst }

// End implements Receiver.
func (l *Answers) End(dst []byte, _ int, asStored bool, err error) []byte {
	l.ends, l.list = append(l.ends, len(dst)), append(l.list, Answer{Err: err, AsStored: asStored})
	return dst
}

// Reset implements Receiver.
func (l *Answers) Reset() {
	clear(l.list)
	l.ends, l.list = l.ends[:0], l.list[:0]
}

// First returns the first n answers, whose documents begin at start of dst. They are valid
// until Reset.
func (l *Answers) First(n int, dst []byte, start int) []Answer {
	for i, end := range l.ends[:n] {
		if l.list[i].Err == nil {
			l.list[i].Document = dst[start:end:end]
		}
		start = end
	}
	return l.list[:n]
}
