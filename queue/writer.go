package queue

import (
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/errors"
)

// Writer appends to the queue in a directory. Any number of goroutines may use
// it; a directory has one Writer at a time.
//
// What Append, Put and Delete return for is in memory. After Flush it is
// durable and readers see it.
//
// The first failure to write is final: what was flushed before is safe, and
// every further call returns the same error, Close too. Whoever wants to go on
// closes the Writer and opens another.
//
// A Writer decides where everything lies, and leaves it to its pipeline to
// compress and write: what is below is what the files are going to be, not what
// they are.
type Writer struct {
	dir      string
	options  WriterOptions
	codec    codec
	plain    encoder // without a dictionary
	lock     io.Closer
	pipeline *pipeline
	training sync.WaitGroup // the goroutine that trains a dictionary
	turn     chan struct{}  // room for the one Flush that is under way; taken before mu
	closing  sync.Once
	closeErr error

	mu struct {
		sync.Mutex
		closed     bool
		queue      [16]byte
		last       SegmentID     // the highest number taken
		lastRaw    uint64        // documents in the last segment that ended, before compression
		segment    *openSegment  // nil: the next entry begins one
		block      *pendingBlock // nil: the next entry begins one
		cursor     []byte
		cursorErr  error       // the last SetCursor was refused
		added      uint64      // entries
		durable    uint64      // of them
		dictionary *dictionary // for the next segment; nil: none
		sample     *sample
		sampled    int64            // bytes of documents offered to the sample
		trained    bool             // a first training was started
		fruitless  int              // trainings in a row that brought nothing, up to maxFruitless
		skip       int              // segments after which none is started
		result     chan *dictionary // of the training under way; nil: none is
	}
}

// openSegment is the segment that the Writer fills.
type openSegment struct {
	number     SegmentID
	dictionary *dictionary // nil: none
	size       int64       // of the file when all that was submitted is written
	raw        uint64      // bytes of the documents before compression
	first      time.Time   // when the first entry was appended; zero: there is none
	unmarked   bool        // there are blocks behind the last commit mark
}

// next is the address of the first entry of the next block.
func (s *openSegment) next() Address {
	return Address{Segment: s.number, Block: uint32(s.size)}
}

// fits tells whether another block, however large, and the footer fit into the
// offsets there are.
func (s *openSegment) fits() bool {
	return s.size+maxBlockFileBytes+markBytes+footerBytes <= MaxSegmentBytes
}

// Append adds a document and returns its address, which is permanent. The
// slices may be reused at once. An empty document is a document.
func (w *Writer) Append(id, doc []byte) (Address, error) {
	return w.Put(Record{ID: id, Document: doc})
}

// Delete adds the news that there is no document of this id any more.
func (w *Writer) Delete(id []byte) (Address, error) {
	return w.Put(Record{ID: id, Delete: true})
}

// Put is Append or Delete with all that can be said of an entry. On an error
// nothing was added, nor the cursor set.
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
	at := b.at
	at.Index = b.add(r)
	if r.Cursor != nil {
		w.mu.cursor = append(w.mu.cursor[:0], r.Cursor...)
	}
	if full := b.cut(chunkBytes); full != nil {
		w.pipeline.compress(full)
	}
	w.mu.added++
	w.mu.segment.raw += uint64(len(r.Document))
	if !r.Delete && w.codec.train != nil && w.options.dictionaryBytes > 0 {
		w.mu.sample.add(at.Segment, r.Document)
		w.mu.sampled += int64(len(r.Document))
	}
	return at, nil
}

// makeRoom sees to it that there is a block to which an entry of the given bytes
// can be added. Blocks and segments end here, before an entry that they do not
// take, and not behind the last one they do: so the cursor set after an entry is
// stored with it.
func (w *Writer) makeRoom(bytes int) error {
	fits := w.mu.block != nil && w.mu.block.takes(bytes, w.options.BlockBytes)
	if fits && w.options.SegmentAge == 0 {
		return nil // without looking at the clock, which would be a tenth of all this
	}
	now := w.options.Now()
	if fits && !w.tooOld(now) {
		return nil
	}
	w.closeBlock()
	w.takeDictionary()
	if s := w.mu.segment; s != nil {
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

// tooOld tells whether the open segment has reached its age.
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
	header := segmentHeader{queue: w.mu.queue, segment: w.mu.last, codec: w.codec.id, created: now.UnixMilli()}
	d := w.mu.dictionary
	if d != nil && w.mu.lastRaw < dictionaryShare*uint64(len(d.bytes)) {
		d = nil // segments are small here: see wantsDictionary
	}
	if d != nil {
		header.dictionary.bytes, header.dictionary.hash, header.sampled = uint32(len(d.bytes)), d.hash, d.sampled
	}
	w.mu.segment = &openSegment{number: w.mu.last, dictionary: d, size: header.firstFrame()}
	w.pipeline.submit(step{begin: &beginning{header: header, dictionary: d}})
	return nil
}

// beginBlock makes the next block of the open segment.
func (w *Writer) beginBlock(now time.Time) {
	s := w.mu.segment
	b := &pendingBlock{at: s.next(), encoder: w.plain, appended: now.UnixMilli()}
	if s.dictionary != nil {
		b.encoder = s.dictionary.encoder
	}
	if s.first.IsZero() {
		s.first = now
	}
	w.mu.block = b
}

// closeBlock ends the block, if there is one, and has it written.
func (w *Writer) closeBlock() {
	s, b := w.mu.segment, w.mu.block
	if b == nil {
		return
	}
	w.mu.block = nil
	b.cursor = slices.Clone(w.mu.cursor)
	w.pipeline.finish(b)
	s.size += b.size()
	s.unmarked = true
	w.pipeline.submit(step{block: b})
	if w.mu.dictionary == nil && !w.mu.trained {
		w.train()
	}
}

// mark has a commit mark written behind all that was submitted, if there is not
// one already.
func (w *Writer) mark(done chan<- error) {
	s := w.mu.segment
	if s == nil || !s.unmarked {
		w.pipeline.submit(step{done: done}) // what is submitted is yet to be written
		return
	}
	s.size += markBytes
	s.unmarked = false
	w.pipeline.submit(step{mark: true, done: done})
}

// seal has the open segment ended, if there is one. Its block must be closed.
func (w *Writer) seal(done chan<- error) {
	s := w.mu.segment
	w.mu.segment = nil
	w.pipeline.submit(step{seal: true, done: done})
	if s != nil {
		w.mu.lastRaw = s.raw
		w.trainAfterSegment()
	}
}

// usable returns why nothing can be written any more. The mutex must be held.
func (w *Writer) usable() error {
	if w.mu.closed {
		return ErrClosed
	}
	if err := w.pipeline.failed(); err != nil {
		return err
	}
	return w.mu.cursorErr
}

// describe is the error that every call returns after a first failure.
func (w *Writer) describe(err error) error {
	return errors.Wrapf(err, "queue: writing to %s failed; what was flushed is safe, "+
		"and nothing more is written until it is opened anew", w.dir)
}

// SetCursor sets the position in the input, which travels with the next block
// that is committed: call it after the entries that it covers. It may be called
// again at any time. After a cursor of more than MaxCursorBytes everything fails
// with ErrCursorTooLong until there is a shorter one.
//
// Where Flush is called by another goroutine than the one that appends, it may
// come between an Append and the SetCursor that belongs to it: see Record.Cursor.
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

// Cursor returns the cursor: that of the last block of the queue after
// OpenWriter, the one that was set after SetCursor. Nil: there is none.
func (w *Writer) Cursor() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.cursor)
}

// Flush makes all that was added before durable and visible to readers. Others
// may go on to append meanwhile. Calls that come while one is under way are
// served together by the next.
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
		w.mu.Unlock()
		return err
	}
	end := w.mark
	if old {
		end = w.seal
	}
	return w.endBlock(end)
}

// Seal makes all that was added before durable and closes the segment, which is
// then ready to be copied under its final name. The next entry begins a new one.
func (w *Writer) Seal() error {
	w.mu.Lock()
	if err := w.usable(); err != nil {
		w.mu.Unlock()
		return err
	}
	return w.endBlock(w.seal)
}

// endBlock closes the block, submits what end does, gives up the mutex, which
// must be held, and waits for the outcome.
func (w *Writer) endBlock(end func(done chan<- error)) error {
	done := make(chan error, 1)
	w.closeBlock()
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

// Close seals the segment and gives up the directory. It returns the error of
// an earlier failure if there was one. Further calls return the same.
func (w *Writer) Close() error {
	w.closing.Do(func() {
		w.mu.Lock()
		err := w.usable()
		w.mu.closed = true
		if err == nil {
			err = w.endBlock(w.seal)
		} else {
			w.mu.Unlock()
		}
		w.pipeline.stop()
		w.training.Wait()
		w.closeErr = errors.CombineErrors(err, w.lock.Close())
	})
	return w.closeErr
}
