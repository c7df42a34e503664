package queue

import (
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// Writer appends to the queue in a directory. It is safe for concurrent use; a directory
// has one Writer at a time.
//
// Entries are in memory when Append, Put and Delete return, and durable and visible to
// readers after Flush.
//
// The first write error is final: flushed entries are safe, and every later call,
// including Close, returns the same error. To continue, close the Writer and open
// another.
type Writer struct {
	// The Writer assigns addresses; its pipeline compresses and writes. The fields
	// describe the files as they will be after the submitted steps.

	dir      string
	options  WriterOptions
	codec    codec.Codec
	plain    codec.Encoder // without a dictionary
	lock     io.Closer
	pipeline *pipeline
	trainer  *dictionary.Trainer // of the group, if there is one
	turn     chan struct{}       // semaphore of the one running Flush; taken before mu
	closing  sync.Once
	closeErr error

	mu struct {
		sync.Mutex
		closed    bool
		queue     [16]byte
		last      SegmentID             // the highest number used
		lastRaw   uint64                // uncompressed bytes in the previous segment
		segment   *openSegment          // nil: the next entry begins one
		block     *segment.PendingBlock // nil: the next entry begins one
		end       Address               // see End
		cursor    []byte
		cursorErr error  // error of the last SetCursor
		added     uint64 // entries
		durable   uint64 // of these
		// transaction: Begin was called since the last Flush. uncommitted: blocks of the
		// transaction were submitted.
		transaction, uncommitted bool
	}
}

// openSegment is the segment that the Writer fills.
type openSegment struct {
	number     SegmentID
	dictionary *dictionary.Dictionary // nil: none
	size       int64                  // of the file after the submitted steps
	rewritten  int64                  // maximum size of the blocks in a rewrite of the segment
	raw        uint64                 // bytes of the documents before compression
	first      time.Time              // time of the first entry; zero: there is none
	unmarked   bool                   // blocks follow the last commit mark
}

// next is the address of the first entry of the next block.
func (s *openSegment) next() Address {
	return Address{Segment: s.number, Block: uint32(s.size)}
}

// fits reports whether a block of the maximum size and the footer can be added within
// 32-bit offsets, to the segment and to every rewrite of it. A rewrite can be larger than
// its segment: relocated blocks have more columns, and an erasure encodes the documents
// again, without a dictionary if it has too few of them. If it did not fit, a document could
// not be erased.
func (s *openSegment) fits() bool {
	return s.size+segment.MaxBlockFileBytes+segment.MarkBytes+segment.FooterBytes <= MaxSegmentBytes &&
		s.rewritten+segment.MaxRelocatedBytes+segment.RewriteReserveBytes <= MaxSegmentBytes
}

// Append adds a document and returns its permanent address. The slices may be reused
// after it returns. A document may be empty.
func (w *Writer) Append(id, doc []byte) (Address, error) {
	return w.Put(Record{ID: id, Document: doc})
}

// Delete adds a delete of the id.
func (w *Writer) Delete(id []byte) (Address, error) {
	return w.Put(Record{ID: id, Delete: true})
}

// Put is Append or Delete with all options of a Record. On an error neither the entry is
// added nor the cursor set.
func (w *Writer) Put(r Record) (Address, error) {
	switch {
	case len(r.ID) == 0:
		return Address{}, ErrIDEmpty
	case len(r.ID) > MaxIDBytes:
		return Address{}, errors.Wrapf(ErrIDTooLong, "it has %d bytes, at most %d are allowed", len(r.ID), MaxIDBytes)
	case len(r.Document) > MaxDocumentBytes:
		return Address{}, errors.Wrapf(ErrDocumentTooLarge, "it has %d bytes, at most %d are allowed", len(r.Document), MaxDocumentBytes)
	case len(r.Cursor) > MaxCursorBytes:
		return Address{}, cursorTooLong(r.Cursor)
	case r.Delete && (len(r.Document) > 0 || !r.Expires.IsZero()):
		return Address{}, ErrDeleteWithDocument
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return Address{}, err
	}
	if err := w.makeRoom(len(r.ID) + len(r.Document)); err != nil {
		return Address{}, w.pipeline.fail(err)
	}
	b := w.mu.block
	at := b.At
	at.Index = b.Add(r.ID, r.Document, r.Delete, r.Expires)
	if r.Cursor != nil {
		w.mu.cursor = append(w.mu.cursor[:0], r.Cursor...)
	}
	if full := b.Cut(segment.ChunkBytes); full != nil {
		w.pipeline.compressors.compress(full)
	}
	w.mu.added++
	w.mu.segment.raw += uint64(len(r.Document))
	if !r.Delete {
		w.trainer.Offer(at.Segment, r.Document)
	}
	return at, nil
}

// makeRoom makes sure that an entry of the given bytes can be added to the current block.
// Blocks and segments are ended here, before the entry that does not fit, and not after
// the last one that does: so the cursor that is set after an entry is stored with it.
func (w *Writer) makeRoom(bytes int) error {
	fits := w.mu.block != nil && w.mu.block.Takes(bytes, w.options.BlockBytes)
	if fits && w.options.SegmentAge == 0 {
		return nil // do not read the clock: it takes a tenth of the time of an append
	}
	now := w.options.Now()
	if fits && !w.tooOld(now) {
		return nil
	}
	w.closeBlock()
	s := w.mu.segment
	if s == nil {
		w.trainer.Take(0)
	} else {
		w.trainer.Take(s.raw)
		if s.size >= w.options.SegmentBytes || !s.fits() || w.tooOld(now) || w.wantsDictionary() {
			w.seal(nil)
		}
	}
	if w.mu.segment == nil {
		if err := w.begin(now); err != nil {
			return err
		}
	}
	w.beginBlock(now)
	return nil
}

// tooOld reports whether the open segment has reached its age.
func (w *Writer) tooOld(now time.Time) bool {
	s := w.mu.segment
	return w.options.SegmentAge > 0 && s != nil && !s.first.IsZero() && now.Sub(s.first) >= w.options.SegmentAge
}

// begin makes the next segment.
func (w *Writer) begin(now time.Time) error {
	if w.mu.last == math.MaxUint32 {
		return ErrFull
	}
	w.mu.last++
	header := segment.Header{Queue: w.mu.queue, Segment: w.mu.last, Codec: w.codec.ID, Created: now.UnixMilli()}
	d := w.trainer.Current()
	if d != nil && w.mu.lastRaw < w.trainer.Share()*uint64(len(d.Bytes)) {
		d = nil // segments are too small: see wantsDictionary
	}
	if d != nil {
		header.Dictionary.Bytes, header.Dictionary.Hash, header.Sampled = uint32(len(d.Bytes)), d.Hash, d.Sampled
	}
	w.mu.segment = &openSegment{number: w.mu.last, dictionary: d, size: header.FirstFrame()}
	start := segmentStart{header: header}
	if d != nil {
		start.dictionary = d.Bytes
	}
	w.pipeline.submit(step{begin: &start})
	return nil
}

// beginBlock makes the next block of the open segment.
func (w *Writer) beginBlock(now time.Time) {
	s := w.mu.segment
	b := &segment.PendingBlock{At: s.next(), Encoder: w.plain, Appended: now.UnixMilli()}
	if s.dictionary != nil {
		b.Encoder = s.dictionary.Encoder
	}
	if s.first.IsZero() {
		s.first = now
	}
	w.mu.block = b
}

// closeBlock ends the current block and submits it.
func (w *Writer) closeBlock() {
	s, b := w.mu.segment, w.mu.block
	if b == nil {
		return
	}
	w.mu.block = nil
	w.beginUncommitted()
	b.Cursor = slices.Clone(w.mu.cursor)
	w.pipeline.compressors.finish(b)
	s.size += b.Size()
	s.rewritten += b.RelocatedBytes()
	s.unmarked = true
	w.pipeline.submit(step{block: b})
	w.mu.end = s.next()
	if !w.mu.closed { // a closing Writer would not use a dictionary
		w.trainer.BlockEnded()
	}
}

// mark submits a commit mark after everything submitted, unless the last step was one.
func (w *Writer) mark(done chan<- error) {
	s := w.mu.segment
	if s == nil || !s.unmarked {
		w.pipeline.submit(step{done: done}) // submitted blocks have yet to be written
		return
	}
	s.size += segment.MarkBytes
	s.unmarked = false
	w.pipeline.submit(step{mark: true, done: done})
}

// seal submits the end of the open segment, if there is one. Its block must be closed.
func (w *Writer) seal(done chan<- error) {
	s := w.mu.segment
	w.mu.segment = nil
	w.pipeline.submit(step{seal: true, done: done})
	if s != nil {
		w.mu.lastRaw = s.raw
		if !w.mu.closed {
			w.trainer.SegmentEnded()
		}
	}
}

// usable returns the error that prevents writes. The mutex must be held.
func (w *Writer) usable() error {
	if w.mu.closed {
		return ErrClosed
	}
	if err := w.pipeline.failed(); err != nil {
		return err
	}
	return w.mu.cursorErr
}

// describe returns the error of every call after the first failure.
func (w *Writer) describe(err error) error {
	return errors.Wrapf(err, "queue: writing to %s failed; flushed entries are safe; "+
		"to continue, open the queue again", w.dir)
}

// SetCursor sets the position in the input, which is stored with the next committed
// block: call it after the entries that it covers. It may be called repeatedly. After a
// cursor of more than MaxCursorBytes all calls fail with ErrCursorTooLong until a shorter
// one is set.
//
// If another goroutine calls Flush, it may run between an Append and its SetCursor: use
// Record.Cursor.
func (w *Writer) SetCursor(c []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.cursorErr = nil
	if len(c) > MaxCursorBytes {
		w.mu.cursorErr = cursorTooLong(c)
		return
	}
	w.mu.cursor = append(w.mu.cursor[:0], c...)
}

func cursorTooLong(c []byte) error {
	return errors.Wrapf(ErrCursorTooLong, "it has %d bytes, at most %d are allowed", len(c), MaxCursorBytes)
}

// Cursor returns the current cursor: after OpenWriter that of the last block of the
// queue, later the one that was set. Nil: there is none.
func (w *Writer) Cursor() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.cursor)
}

// End returns the address after the last entry; zero: there is none. Entries that were added
// since the last Flush do not count.
func (w *Writer) End() Address {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.end
}

// Flush makes all previous entries durable and visible to readers. Appends may continue
// concurrently. Concurrent calls of Flush are combined.
func (w *Writer) Flush() error {
	w.mu.Lock()
	added := w.mu.added
	w.mu.Unlock()
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	w.mu.Lock()
	err := w.usable()
	old := w.tooOld(w.options.Now())
	if err != nil || w.mu.durable >= added && !old {
		w.commitTransaction() // without entries
		w.mu.Unlock()
		return err
	}
	end := w.mark
	if old {
		end = w.seal
	}
	return w.endBlock(end)
}

// Seal makes all previous entries durable and closes the segment, which can then be
// copied under its final name. The next entry begins another segment.
func (w *Writer) Seal() error {
	w.mu.Lock()
	if err := w.usable(); err != nil {
		w.mu.Unlock()
		return err
	}
	return w.endBlock(w.seal)
}

// endBlock closes the block, submits the steps of end, releases the mutex, which must be
// held, and waits for the result.
func (w *Writer) endBlock(end func(done chan<- error)) error {
	done := make(chan error, 1)
	w.closeBlock()
	w.commitTransaction()
	end(done)
	added := w.mu.added
	w.mu.Unlock()
	err := <-done
	if err == nil {
		w.mu.Lock()
		w.mu.durable = max(w.mu.durable, added)
		w.mu.Unlock()
	}
	return err
}

// Close seals the segment and unlocks the directory. A transaction is discarded: see Begin. It returns the error of an earlier
// failure if there was one. It is idempotent.
func (w *Writer) Close() error {
	w.closing.Do(func() {
		w.mu.Lock()
		err := w.usable()
		w.mu.closed = true
		if err == nil && !w.mu.transaction {
			err = w.endBlock(w.seal)
		} else {
			w.mu.Unlock()
		}
		w.pipeline.stop()
		if w.options.Group == nil {
			w.trainer.Wait()
		}
		w.closeErr = errors.CombineErrors(err, w.lock.Close())
	})
	return w.closeErr
}

// wantsDictionary reports whether the open segment, which has no dictionary, has reached
// the size for one and one is ready. Then the next segment begins early. So the first
// documents of a queue do not wait for a dictionary, and small segments have none.
func (w *Writer) wantsDictionary() bool {
	s, d := w.mu.segment, w.trainer.Current()
	return s.dictionary == nil && d != nil && s.raw >= w.trainer.Share()*uint64(len(d.Bytes))
}
