package collection

import (
	"context"

	"docstore/internal/canary"
	"docstore/internal/rare"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/codec"
)

// A scan reads the documents of scanWindowIDs ids together, in the order of their addresses, up to about
// maxScanWindow bytes or a part of the share of its client, as a response may take long: others
// of the client need memory meanwhile. A single document may exceed them.
const (
	scanWindowIDs   = 256
	maxScanWindow   = 4 << 20
	minScanWindow   = 64 << 10
	scanWindowShare = 8 // the part, as a divisor
)

// scanWindowBytes returns the bytes of documents that a scan for the request reads together.
func scanWindowBytes(ctx context.Context) int {
	return int(min(maxScanWindow, max(minScanWindow, budget.ShareOf(ctx)/scanWindowShare)))
}

// ScanMemory returns the memory of a Scan for the request: the documents that it reads together, while
// their buffer grows. A longer document takes more.
func ScanMemory(ctx context.Context) int { return 2 * scanWindowBytes(ctx) }

// bounds returns the bounds for the iterator of the index. They exclude the empty key,
// which is the position.
func bounds(o *docservice.ScanOptions) *lsm.IterOptions {
	lower := make([]byte, 0, len(o.After)+1)
	lower = append(append(lower, o.After...), 0) // the least key after After
	return &lsm.IterOptions{LowerBound: lower, Prefix: o.Prefix}
}

// Scan calls fn for each id, in byte order, with its document, or with an error as of Get
// if the document cannot be read; it skips deleted and expired ones, and those of
// docservice.CanaryPrefix. It shows the ids and
// documents of one moment. id and answer are valid until fn returns. Scan returns the first
// error of fn.
//
// Memory is bounded for any number of ids, but the memtables of that moment are pinned
// until the scan ends: fn must not block for long.
//
// Until the collection is ready, as of Status, Scan fails with docservice.ErrUnavailable, because
// unread entries would be missing. It also fails so when another queue replaces this one.
func (c *Collection) Scan(ctx context.Context, o docservice.ScanOptions, fn func(id []byte, answer Answer) error) error {
	return c.scan(ctx, o, 0, fn)
}

// scan is Scan that passes documents in a codec of accept in their stored form.
func (c *Collection) scan(ctx context.Context, o docservice.ScanOptions, accept codec.Set, fn func(id []byte, answer Answer) error) error {
	s := c.serving.Load()
	err := s.reader.scan(ctx, o, accept, fn)
	if c.superseded(s, err) {
		return errReplaced
	}
	return err
}

// errReplaced ends a scan whose remaining ids belong to another queue.
var errReplaced = unavailable(errors.New("the queue was replaced during the scan; start it again"))

func (r *reader) scan(ctx context.Context, o docservice.ScanOptions, accept codec.Set, fn func(id []byte, answer Answer) error) error {
	if g := r.health.gap.Load(); g != nil {
		return g.err
	}
	w := scanWindow{reader: r, accept: accept, canaries: canary.Is(o.Prefix), unsettled: r.unsettled.Load()} // before the iterator, as in get
	it := r.index.NewIter(bounds(&o))
	defer func() { _ = it.Close() }() // Err was checked
	left := o.Limit
	deliver := func(id []byte, answer Answer) error {
		left--
		return fn(id, answer)
	}
	for o.Limit == 0 || left > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		wanted := scanWindowIDs
		if o.Limit > 0 {
			wanted = min(wanted, left)
		}
		if !w.fill(it, wanted) {
			break
		}
		if err := w.deliver(ctx, o.IDsOnly, deliver); err != nil {
			return err
		}
	}
	switch err := it.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, lsm.ErrBudget):
		return unavailable(err) // another server may have the memory
	default:
		return r.answer(indexError(err), queue.Address{})
	}
}

// Count counts the ids with the prefix that Scan would show. It reads no documents.
func (c *Collection) Count(ctx context.Context, prefix []byte) (int64, error) {
	var count int64
	err := c.Scan(ctx, docservice.ScanOptions{Prefix: prefix, IDsOnly: true}, func([]byte, Answer) error {
		count++
		return nil
	})
	return count, err
}

// scanWindow holds the ids of a scan whose documents are read together.
type scanWindow struct {
	reader    *reader
	accept    codec.Set
	canaries  bool // include them
	unsettled *unsettled
	keys      []byte // the ids, concatenated
	ends      []int
	ids       [][]byte
	entries   []batchEntry
	memory    batchMemory
	answers   Answers
	documents []byte
}

// fill reads up to wanted ids that have not expired. It returns false if there are none.
func (w *scanWindow) fill(it *lsm.Iterator, wanted int) bool {
	w.keys, w.ends, w.ids, w.entries = w.keys[:0], w.ends[:0], w.ids[:0], w.entries[:0]
	now := w.reader.options.Now()
	for len(w.entries) < wanted && it.Next() {
		if !w.canaries && canary.Is(it.Key()) {
			continue
		}
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			err = w.reader.answer(indexError(err), queue.Address{})
		} else if entry.expired(now) {
			continue
		}
		w.keys = append(w.keys, it.Key()...)
		w.ends = append(w.ends, len(w.keys))
		w.entries = append(w.entries, batchEntry{indexEntry: entry, err: err})
	}
	start := 0
	for _, end := range w.ends { // keys is not reallocated from here on
		w.ids = append(w.ids, w.keys[start:end:end])
		start = end
	}
	return len(w.ids) > 0
}

// deliver reads the documents, unless only ids are wanted, and calls fn for each
// id that has one.
func (w *scanWindow) deliver(ctx context.Context, idsOnly bool, fn func(id []byte, answer Answer) error) error {
	if idsOnly {
		for i, id := range w.ids {
			answer := Answer{}
			if entry := w.entries[i].indexEntry; w.unsettled.holds(entry.address) {
				_, answer.Err = w.reader.existing(id, entry)
			}
			switch {
			case errors.Is(answer.Err, ErrClosed):
				return answer.Err
			case errors.Is(answer.Err, docservice.ErrNotFound):
				continue
			}
			if err := fn(id, answer); err != nil {
				return err
			}
		}
		return nil
	}
	bytes := scanWindowBytes(ctx)
	for from := 0; from < len(w.ids); {
		w.answers.Reset()
		b := batch{
			memory: &w.memory, reader: w.reader, ids: w.ids[from:], entries: w.entries[from:],
			accept: w.accept, to: &w.answers, dst: w.documents[:0], maxBytes: rare.Limit("scan window", bytes, 4<<10),
		}
		if err := budget.Compute(ctx, bytes, b.readAll); err != nil {
			return err
		}
		if b.closed {
			return ErrClosed
		}
		for i, answer := range w.answers.First(b.answered, b.dst, 0) {
			if errors.Is(answer.Err, docservice.ErrNotFound) { // expired or compacted away meanwhile
				continue
			}
			if err := fn(b.ids[i], answer); err != nil {
				return err
			}
		}
		from += b.answered
		if w.documents = b.dst; cap(w.documents) > 2*bytes {
			w.documents = nil // do not keep the memory of a huge document
		}
	}
	return nil
}
