package docservice

import (
	"context"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// Limits of a scan over Boxcar. A Collection scans without an end in bounded
// memory.
const (
	// DefaultScanIDs is how many ids a page has if no number is asked for.
	DefaultScanIDs = 1000
	// MaxScanIDs is how many may be asked for.
	MaxScanIDs = 4096
)

// A scan reads the documents of so many ids at a time, in the order of their
// addresses, and about so many bytes; a single document may exceed them.
const (
	scanWindowIDs   = 256
	scanWindowBytes = 4 << 20
)

// ScanOptions say what is scanned. The zero value is everything.
type ScanOptions struct {
	Prefix []byte // what all ids begin with
	After  []byte // only ids behind this one
	// Limit is the most ids wanted. 0 is all of them for a Collection, and
	// DefaultScanIDs for a Client.
	Limit   int
	IDsOnly bool // leave the documents out
}

// bounds are the options for the index. The empty key, which is none of the
// ids, stays outside.
func (o *ScanOptions) bounds() *lsm.IterOptions {
	lower := make([]byte, 0, len(o.After)+1)
	lower = append(append(lower, o.After...), 0) // the least key behind After
	return &lsm.IterOptions{LowerBound: lower, Prefix: o.Prefix}
}

// Scan calls fn for each id, in the order of their bytes, with its document, or
// with an error as of Get where it cannot be had; what has been deleted or has
// expired is passed over. It shows the ids of one moment, each with the document
// that it had then. id and answer are valid until fn returns, and it returns
// the first error of fn.
//
// Memory is bounded whatever is scanned, but what the index holds in memory at
// that moment stays there until the end: fn should not wait without bound.
//
// Until the collection is ready, as of Status, Scan fails with ErrUnavailable:
// what has not been read would be missing. So it does when another queue takes the
// place of this one.
func (c *Collection) Scan(ctx context.Context, o ScanOptions, fn func(id []byte, answer Answer) error) error {
	return c.scan(ctx, o, 0, fn)
}

// scan is Scan, giving documents that need no codec but those taken in their
// stored form.
func (c *Collection) scan(ctx context.Context, o ScanOptions, take queue.CodecSet, fn func(id []byte, answer Answer) error) error {
	s := c.serving.Load()
	err := s.scan(ctx, o, take, fn)
	if c.superseded(s, err) {
		return errReplaced
	}
	return err
}

// errReplaced ends a scan of which the rest would be of another queue.
var errReplaced = unavailable(errors.New("another queue has taken the place of the one that was listed"))

func (s *store) scan(ctx context.Context, o ScanOptions, take queue.CodecSet, fn func(id []byte, answer Answer) error) error {
	if g := s.gap.Load(); g != nil {
		return g.err
	}
	it := s.index.NewIter(o.bounds())
	defer func() { _ = it.Close() }() // Err has told
	left := o.Limit
	deliver := func(id []byte, answer Answer) error {
		left--
		return fn(id, answer)
	}
	w := scanWindow{store: s, take: take}
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
		if err := w.deliver(o.IDsOnly, deliver); err != nil {
			return err
		}
	}
	switch err := it.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, lsm.ErrBudget):
		return unavailable(err) // another server may have the memory
	default:
		return s.answer(indexError(err), queue.Address{})
	}
}

// Count counts the ids that begin with the prefix: those that Scan would show.
// It reads no documents.
func (c *Collection) Count(ctx context.Context, prefix []byte) (int64, error) {
	var count int64
	err := c.Scan(ctx, ScanOptions{Prefix: prefix, IDsOnly: true}, func([]byte, Answer) error {
		count++
		return nil
	})
	return count, err
}

// scanWindow is the ids of a scan whose documents are read together.
type scanWindow struct {
	store     *store
	take      queue.CodecSet
	keys      []byte // the ids, one behind the other
	ends      []int
	ids       [][]byte
	entries   []batchEntry
	memory    batchMemory
	answers   answerList
	documents []byte
}

// fill takes the next ids that have not expired, up to the number wanted. It
// returns false if there are none.
func (w *scanWindow) fill(it *lsm.Iterator, wanted int) bool {
	w.keys, w.ends, w.ids, w.entries = w.keys[:0], w.ends[:0], w.ids[:0], w.entries[:0]
	now := w.store.options.Now()
	for len(w.entries) < wanted && it.Next() {
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			err = w.store.answer(indexError(err), queue.Address{})
		} else if entry.expired(now) {
			continue
		}
		w.keys = append(w.keys, it.Key()...)
		w.ends = append(w.ends, len(w.keys))
		w.entries = append(w.entries, batchEntry{indexEntry: entry, err: err})
	}
	start := 0
	for _, end := range w.ends { // now that keys does not move any more
		w.ids = append(w.ids, w.keys[start:end:end])
		start = end
	}
	return len(w.ids) > 0
}

// deliver reads the documents, unless only ids are wanted, and calls fn for each
// id that has one.
func (w *scanWindow) deliver(idsOnly bool, fn func(id []byte, answer Answer) error) error {
	if idsOnly {
		for _, id := range w.ids {
			if err := fn(id, Answer{}); err != nil {
				return err
			}
		}
		return nil
	}
	for from := 0; from < len(w.ids); {
		w.answers.reset()
		b := batch{
			memory: &w.memory, store: w.store, ids: w.ids[from:], entries: w.entries[from:],
			take: w.take, to: &w.answers, dst: w.documents[:0], maxBytes: scanWindowBytes,
		}
		b.readAll()
		if b.closed {
			return ErrClosed
		}
		for i, answer := range w.answers.first(b.answered, b.dst, 0) {
			if errors.Is(answer.Err, ErrNotFound) { // it has expired or was compacted away in between
				continue
			}
			if err := fn(b.ids[i], answer); err != nil {
				return err
			}
		}
		from += b.answered
		if w.documents = b.dst; cap(w.documents) > 2*scanWindowBytes {
			w.documents = nil // a huge document was among them
		}
	}
	return nil
}
