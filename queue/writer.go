package queue

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
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
type Writer struct {
	dir      string
	options  WriterOptions
	codec    codec
	plain    encoder // without a dictionary
	lock     io.Closer
	training sync.WaitGroup // the goroutine that trains a dictionary
	closing  sync.Once
	closeErr error

	mu struct {
		sync.Mutex
		err        error // the first failure; final
		closed     bool
		queue      [16]byte
		last       SegmentID // the highest number taken
		lastDigest digest    // of the footer of segment last, once it is sealed
		lastRaw    uint64    // documents in it, before compression
		segment    *segmentWriter
		block      blockBuilder
		cursor     []byte
		cursorErr  error       // the last SetCursor was refused
		dictionary *dictionary // for the next segment; nil: none
		sample     *sample
		sampled    int64            // bytes of documents offered to the sample
		trained    bool             // a first training was started
		result     chan *dictionary // of the training under way; nil: none is
	}
}

// OpenWriter opens the queue in dir for writing, and makes both if there is
// none. A segment left open by a writer that stopped early is sealed first.
//
// ErrLocked: another Writer has dir. *CorruptionError: the newest segment is
// damaged below what was flushed.
func OpenWriter(dir string, opts *WriterOptions) (*Writer, error) {
	w := &Writer{dir: dir}
	if opts != nil {
		w.options = *opts
	}
	if err := w.complete(); err != nil {
		return nil, err
	}
	if err := makeDir(w.options.FS, filepath.Clean(dir)); err != nil {
		return nil, errors.Wrap(err, "queue: making the directory")
	}
	lock, err := lockDir(w.options.FS, dir, w.options.Now())
	if err != nil {
		return nil, err
	}
	w.lock = lock
	if err := w.restore(); err != nil {
		lock.Close()
		return nil, errors.Wrapf(err, "queue: opening %s for writing", dir)
	}
	return w, nil
}

// complete checks the options and puts in the defaults.
func (w *Writer) complete() error {
	o := &w.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Codec == "" {
		o.Codec = DefaultCodec
	}
	if o.BlockBytes == 0 {
		o.BlockBytes = DefaultBlockBytes
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.newQueueID == nil {
		o.newQueueID = randomQueueID
	}
	if o.dictionaryBytes == 0 {
		o.dictionaryBytes = defaultDictionaryBytes
	}
	var faults []error
	if o.BlockBytes < 0 || o.BlockBytes > MaxBlockBytes {
		faults = append(faults, fmt.Errorf("queue: BlockBytes is %d, at most %d are allowed", o.BlockBytes, MaxBlockBytes))
	}
	if o.SegmentBytes < 0 || o.SegmentBytes > MaxSegmentBytes {
		faults = append(faults, fmt.Errorf("queue: SegmentBytes is %d, at most %d are allowed", o.SegmentBytes, int64(MaxSegmentBytes)))
	}
	if o.SegmentAge < 0 {
		faults = append(faults, fmt.Errorf("queue: SegmentAge is %v", o.SegmentAge))
	}
	c, err := codecByName(o.Codec)
	if err != nil {
		faults = append(faults, err)
	} else {
		w.codec = c
		w.plain, err = c.newEncoder(nil)
		faults = append(faults, err)
	}
	w.mu.sample = newSample(sampleShare * max(o.dictionaryBytes, 0))
	return errors.Join(faults...)
}

func randomQueueID() (id [16]byte, err error) {
	_, err = rand.Read(id[:])
	return id, err
}

// makeDir makes the directory and its parents, durably.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}

func lockDir(fsys vfs.FS, dir string, now time.Time) (io.Closer, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	holder := fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, now.UTC().Format(time.RFC3339))
	lock, err := fsys.Lock(filepath.Join(dir, lockName), holder)
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		by := "by another process"
		if locked.Holder != "" {
			by = "by " + locked.Holder
		}
		return nil, &markedError{mark: ErrLocked, detail: dir + ", " + by}
	}
	return lock, errors.Wrap(err, "queue: locking the directory")
}

// Append adds a document and returns its address, which is permanent. The
// slices may be reused at once. An empty document is a document.
func (w *Writer) Append(id, doc []byte) (Address, error) {
	return w.add(Record{ID: id, Document: doc}, false)
}

// Put is Append with an expiry time.
func (w *Writer) Put(r Record) (Address, error) { return w.add(r, false) }

// Delete adds the news that there is no document of this id any more.
func (w *Writer) Delete(id []byte) (Address, error) {
	return w.add(Record{ID: id}, true)
}

func (w *Writer) add(r Record, deleted bool) (Address, error) {
	switch {
	case len(r.ID) == 0:
		return Address{}, ErrIDEmpty
	case len(r.ID) > MaxIDBytes:
		return Address{}, errors.Wrapf(ErrIDTooLong, "it has %d bytes, at most %d are allowed", len(r.ID), MaxIDBytes)
	case len(r.Document) > MaxDocumentBytes:
		return Address{}, errors.Wrapf(ErrDocumentTooLarge, "it has %d bytes, at most %d are allowed", len(r.Document), MaxDocumentBytes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return Address{}, err
	}
	now := w.options.Now()
	if err := w.makeRoom(len(r.ID)+len(r.Document), now); err != nil {
		return Address{}, w.fail(err)
	}
	at := w.mu.segment.next()
	at.Index = w.mu.block.add(r.ID, r.Document, deleted, expirySeconds(r.Expires), now.UnixMilli())
	if !deleted && w.codec.train != nil && w.options.dictionaryBytes > 0 {
		w.mu.sample.add(r.Document)
		w.mu.sampled += int64(len(r.Document))
	}
	return at, nil
}

// makeRoom sees to it that an entry of the given bytes can be added to the
// block. Blocks and segments end here, before an entry that they do not take,
// and not behind the last one they do: so the cursor set after an entry is
// stored with it.
func (w *Writer) makeRoom(bytes int, now time.Time) error {
	if w.tooOld(now) || !w.mu.block.takes(bytes, w.options.BlockBytes) {
		if err := w.closeBlock(); err != nil {
			return err
		}
	}
	if w.mu.block.count() > 0 {
		return nil
	}
	if s := w.mu.segment; s != nil {
		w.takeDictionary()
		if s.size >= w.options.SegmentBytes || !s.fits() || w.tooOld(now) || w.wantsDictionary() {
			if err := w.seal(); err != nil {
				return err
			}
		}
	}
	if w.mu.segment == nil {
		return w.begin(now)
	}
	return nil
}

// tooOld tells whether the open segment has reached its age.
func (w *Writer) tooOld(now time.Time) bool {
	s := w.mu.segment
	if w.options.SegmentAge == 0 || s == nil {
		return false
	}
	first := s.first
	if s.blocks == 0 {
		if w.mu.block.count() == 0 {
			return false
		}
		first = w.mu.block.appended
	}
	return now.Sub(time.UnixMilli(first)) >= w.options.SegmentAge
}

// begin makes the next segment.
func (w *Writer) begin(now time.Time) error {
	if w.mu.last == math.MaxUint32 {
		return ErrFull
	}
	header := segmentHeader{
		queue: w.mu.queue, segment: w.mu.last + 1, codec: w.codec.id,
		created: now.UnixMilli(), previous: w.mu.lastDigest,
	}
	d := w.mu.dictionary
	if d != nil && w.mu.lastRaw < dictionaryShare*uint64(len(d.bytes)) {
		d = nil // segments are small here: see wantsDictionary
	}
	s, err := createSegment(w.options.FS, w.dir, header, d)
	if err != nil {
		return err
	}
	w.mu.segment, w.mu.last = s, header.segment
	return nil
}

// closeBlock writes the block, if it has entries.
func (w *Writer) closeBlock() error {
	s, b := w.mu.segment, &w.mu.block
	if b.count() == 0 {
		return nil
	}
	enc := w.plain
	if s.dictionary != nil {
		enc = s.dictionary.encoder
	}
	if err := s.writeBlock(b.encode(enc, s.next(), s.chain, w.mu.cursor)); err != nil {
		return err
	}
	b.reset()
	if w.mu.dictionary == nil && !w.mu.trained {
		w.train()
	}
	return nil
}

// seal ends the open segment, if there is one. Its block must be closed.
func (w *Writer) seal() error {
	s := w.mu.segment
	if s == nil {
		return nil
	}
	w.mu.segment = nil
	footer, err := s.seal()
	if err != nil {
		return err
	}
	w.mu.lastDigest, w.mu.lastRaw = footer.digest(), footer.raw
	w.train()
	return nil
}

// usable returns why nothing can be written any more. The mutex must be held.
func (w *Writer) usable() error {
	switch {
	case w.mu.closed:
		return ErrClosed
	case w.mu.err != nil:
		return w.mu.err
	}
	return w.mu.cursorErr
}

// fail makes err final.
func (w *Writer) fail(err error) error {
	w.mu.err = errors.Wrapf(err, "queue: writing to %s failed; what was flushed is safe, "+
		"and nothing more is written until it is opened anew", w.dir)
	return w.mu.err
}

// SetCursor sets the position in the input, which travels with the next block
// that is committed: call it after the entries that it covers. It may be called
// again at any time. After a cursor of more than MaxCursorBytes everything fails
// with ErrCursorTooLong until there is a shorter one.
//
// Where Flush is called by another goroutine than the one that appends, the two
// have to see to it themselves that no Flush comes between an Append and the
// SetCursor that belongs to it.
func (w *Writer) SetCursor(c []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.cursorErr = nil
	if len(c) > MaxCursorBytes {
		w.mu.cursorErr = errors.Wrapf(ErrCursorTooLong, "it has %d bytes, at most %d are allowed", len(c), MaxCursorBytes)
		return
	}
	w.mu.cursor = append(w.mu.cursor[:0], c...)
}

// Cursor returns the cursor: that of the last block of the queue after
// OpenWriter, the one that was set after SetCursor. Nil: there is none.
func (w *Writer) Cursor() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.cursor)
}

// Flush makes all that was added before durable and visible to readers.
func (w *Writer) Flush() error { return w.end((*Writer).flush) }

func (w *Writer) flush() error {
	if err := w.closeBlock(); err != nil {
		return err
	}
	if w.tooOld(w.options.Now()) {
		return w.seal()
	}
	if w.mu.segment == nil {
		return nil
	}
	return w.mu.segment.commit()
}

// Seal makes all that was added before durable and closes the segment, which is
// then ready to be copied under its final name. The next entry begins a new one.
func (w *Writer) Seal() error {
	return w.end(func(w *Writer) error {
		if err := w.closeBlock(); err != nil {
			return err
		}
		return w.seal()
	})
}

func (w *Writer) end(do func(*Writer) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if err := do(w); err != nil {
		return w.fail(err)
	}
	return nil
}

// Close seals the segment and gives up the directory. It returns the error of
// an earlier failure if there was one. Further calls return the same.
func (w *Writer) Close() error {
	w.closing.Do(func() {
		err := w.Seal()
		w.mu.Lock()
		w.mu.closed = true
		if w.mu.segment != nil {
			w.mu.segment.close()
			w.mu.segment = nil
		}
		w.mu.Unlock()
		w.training.Wait()
		w.closeErr = errors.CombineErrors(err, w.lock.Close())
	})
	return w.closeErr
}
