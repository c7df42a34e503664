package queue

import (
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// OpenWriter opens the queue in dir for writing, and creates both if necessary. It first
// seals a segment that was left open by a crash.
//
// ErrLocked: another Writer has dir. *CorruptionError: the newest segment is damaged
// before its last commit mark. ErrIncomplete: dir has less than its head states, because
// files were removed or replaced by older copies.
func OpenWriter(dir string, opts *WriterOptions) (*Writer, error) {
	w := &Writer{dir: dir, turn: make(chan struct{}, 1)}
	if opts != nil {
		w.options = *opts
	}
	if err := w.complete(); err != nil {
		return nil, err
	}
	if err := vfs.MakeDir(w.options.FS, dir); err != nil {
		return nil, errors.Wrap(err, "queue: creating the directory")
	}
	lock, err := LockDir(w.options.FS, dir, w.options.Now())
	if err != nil {
		return nil, err
	}
	w.lock = lock
	head, err := w.restore()
	if errors.Is(err, fs.ErrNotExist) { // removed by a compaction since the listing
		head, err = w.restore()
	}
	if err == nil && head.Highest > 0 {
		err = head.save(true)
	}
	if err != nil {
		lock.Close()
		return nil, errors.Wrapf(err, "queue: opening %s for writing", dir)
	}
	w.pipeline = startPipeline(head, &w.options, w.describe)
	return w, nil
}

// complete validates the options and sets the defaults.
func (w *Writer) complete() error {
	o := &w.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Codec == "" && o.Group != nil {
		o.Codec = o.Group.codec.Name
	} else if o.Codec == "" {
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
	if o.DictionaryBytes == 0 {
		o.DictionaryBytes = dictionary.DefaultBytes
	}
	var faults []error
	if o.BlockBytes < 0 || o.BlockBytes > MaxBlockBytes {
		faults = append(faults, fmt.Errorf("queue: BlockBytes is %d, at most %d are allowed", o.BlockBytes, MaxBlockBytes))
	}
	if o.SegmentBytes < MinSegmentBytes || o.SegmentBytes > MaxSegmentBytes {
		faults = append(faults, fmt.Errorf("queue: SegmentBytes is %d, it must be from %d to %d", o.SegmentBytes, MinSegmentBytes, int64(MaxSegmentBytes)))
	}
	if o.SegmentAge < 0 {
		faults = append(faults, fmt.Errorf("queue: SegmentAge is %v", o.SegmentAge))
	}
	c, err := codec.ByName(o.Codec)
	if err != nil {
		faults = append(faults, err)
	} else {
		w.codec = c
		w.plain, err = c.NewEncoder(nil)
		faults = append(faults, err)
	}
	if o.Group != nil {
		w.trainer = o.Group.trainer
		if w.codec.ID != o.Group.codec.ID {
			faults = append(faults, fmt.Errorf("queue: Codec is %s, and that of the Group %s", o.Codec, o.Group.codec.Name))
		}
	} else {
		w.trainer = dictionary.NewTrainer(w.codec, o.DictionaryBytes, w.dir, o.Logger)
	}
	return errors.Join(faults...)
}

// LockDir locks a directory as a Writer does, for a program that writes several queues in it.
// ErrLocked: another one has it.
func LockDir(fsys vfs.FS, dir string, now time.Time) (io.Closer, error) {
	return segment.Lock(fsys, dir, segment.LockName, now)
}

// recoverSegment seals a segment that was left open by a crash: it cuts the file after
// its last whole block, marked or not, and adds the footer. Without whole it cuts the file after the
// last mark: the other blocks are of a transaction. Nothing is ever appended to
// the segment, because replicas may have copied the bytes that were cut.
//
// Everything before a commit mark was durable before the mark was written, so damage
// there is not a result of the crash. It is an error, and the file is not changed. Bytes
// after the last mark may not be on the disk, even if they can be read: see writeAgain.
//
// end is a position in the segment, or zero. A segment without everything before it is an
// older copy: ErrIncomplete.
func recoverSegment(fsys vfs.FS, dir string, n SegmentID, end Position, whole bool, logger *slog.Logger) error {
	name := segment.Path(dir, n, segment.OpenSuffix)
	s, err := segment.Open(fsys, name, n)
	if errors.Is(err, segment.ErrPartial) {
		return &CorruptionError{Path: name, Segment: n, Reason: "open segment has no header"}
	}
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := s.LastMark()
	if err != nil {
		return err
	}
	if end.Next.Segment == n {
		if err := reaches(s, end); err != nil {
			return err
		}
	}
	return s.SealAgain(fsys, w, whole, logger)
}

// reaches checks that the segment has the block that ends at the position, and everything
// before it.
func reaches(s *segment.File, end Position) error {
	var b segment.Block
	w := s.NewWalk()
	for w.Next < int64(end.Next.Block) {
		kind, err := w.Step(s, &b)
		if err != nil && !segment.IsContent(err) {
			return err
		}
		if err != nil || kind == segment.FrameFooter {
			break
		}
	}
	if w.Next == int64(end.Next.Block) && w.Chain == end.Proof.Chain {
		return nil
	}
	return incomplete(filepath.Dir(s.Path), Address{Segment: s.Number, Block: uint32(min(w.Next, int64(end.Next.Block)))},
		"%s has fewer or other entries than before: they ended at %s", s.Path, end.Next)
}

// restore determines where the queue continues. It seals a segment that was left open,
// and returns the head of the directory afterwards.
func (w *Writer) restore() (*headFile, error) {
	l, err := segment.List(w.options.FS, w.dir)
	if err != nil {
		return nil, err
	}
	before, err := w.readHead(&l)
	if err != nil {
		return nil, err
	}
	for _, name := range l.Unfinished {
		if err := w.options.FS.Remove(filepath.Join(w.dir, name)); err != nil {
			return nil, err
		}
	}
	if err := w.recoverOpen(&l, before.End); err != nil {
		return nil, err
	}
	// A killed writer may have left segment names that are not durable. They must be
	// durable before a head that states them.
	if err := w.options.FS.SyncDir(w.dir); err != nil {
		return nil, err
	}
	if err := removeUncommitted(w.options.FS, w.dir); err != nil {
		return nil, err
	}
	if w.mu.last = l.Last(); w.mu.last == 0 {
		w.mu.queue = before.Queue // a queue without entries has the id of its head
		if w.mu.queue == ([16]byte{}) {
			_, err = rand.Read(w.mu.queue[:])
		}
		return &headFile{Head: Head{Queue: w.mu.queue}, fs: w.options.FS, dir: w.dir, now: w.options.Now}, err
	}
	if err := w.restoreLast(&l); err != nil {
		return nil, err
	}
	if err := w.restoreCursor(&l); err != nil {
		return nil, err
	}
	if err := w.restoreDictionary(&l); err != nil {
		return nil, err
	}
	head, err := headOf(w.options.FS, w.dir, w.options.Now)
	if err == nil {
		w.mu.end = head.End.Next
	}
	return head, err
}

// recoverOpen seals the segment that was left open. If the position is in it, everything
// before the position must exist.
func (w *Writer) recoverOpen(l *segment.Listing, end Position) error {
	discard, err := isUncommitted(w.options.FS, w.dir)
	if err != nil {
		return err
	}
	for _, n := range l.Numbers {
		if l.Sealed[n] {
			continue
		}
		s, _, err := l.OpenCovering(w.options.FS, w.dir, n)
		if err != nil {
			return err
		}
		if s != nil { // a rewrite of a repair or truncation replaces it
			s.Close()
			continue
		}
		if l.After(n) {
			return errors.Newf("segment %d is not sealed but later segments exist: restore %s", n, segment.Path(w.dir, n, segment.SealedSuffix))
		}
		if err := recoverSegment(w.options.FS, w.dir, n, end, !discard, w.options.Logger); err != nil {
			return err
		}
	}
	return nil
}

// openSealed opens the file of a segment: the rewrite that replaces it, or one that must
// have a footer.
func (w *Writer) openSealed(l *segment.Listing, n SegmentID) (*segment.File, error) {
	s, damage, err := l.OpenCovering(w.options.FS, w.dir, n)
	if s != nil || err != nil {
		return s, err
	}
	name := segment.Path(w.dir, n, segment.SealedSuffix)
	s, err = segment.Open(w.options.FS, name, n)
	switch {
	case errors.Is(err, fs.ErrNotExist) && damage != nil:
		return nil, damage
	case err == nil && s.Footer == nil:
		s.Close()
		err = segment.ErrPartial
	}
	if errors.Is(err, segment.ErrPartial) {
		err = &CorruptionError{Path: name, Segment: n, Reason: "sealed segment is incomplete"}
	}
	return s, err
}

func (w *Writer) restoreLast(l *segment.Listing) error {
	s, err := w.openSealed(l, w.mu.last)
	if err != nil {
		return err
	}
	defer s.Close()
	w.mu.queue, w.mu.lastRaw = s.Header.Queue, s.Footer.Raw
	return nil
}

// restoreCursor reads the cursor of the last block of the queue.
func (w *Writer) restoreCursor(l *segment.Listing) error {
	for _, n := range slices.Backward(l.Places()) {
		s, err := w.openSealed(l, n)
		if err != nil {
			return err
		}
		var table segment.Relocations
		err = s.ChainInto(&table)
		s.Close()
		if err != nil {
			return err
		}
		if s.Footer.Blocks > 0 || len(table.Cursor) > 0 {
			w.mu.cursor = slices.Clone(table.Cursor)
			return nil
		}
	}
	return nil
}

// maxDictionaryLookback is the number of segments that are searched for a dictionary.
const maxDictionaryLookback = 64

// restoreDictionary reuses the dictionary of the newest segment that has one of this
// codec, unless some of the documents that it was trained from were erased. A group
// has another dictionary.
func (w *Writer) restoreDictionary(l *segment.Listing) error {
	if w.options.Group != nil || w.trainer.Off() {
		return nil
	}
	places := l.Places()
	for _, n := range slices.Backward(places[max(0, len(places)-maxDictionaryLookback):]) {
		content, sampled, err := w.dictionaryOf(l, n)
		if err != nil {
			w.options.Logger.Warn("dictionary cannot be reused", "queue", w.dir, "error", err)
			return nil
		}
		if len(content) == 0 {
			continue
		}
		if erased, err := w.erasedFrom(l, sampled); erased || err != nil {
			return err
		}
		d, err := dictionary.New(w.codec, content)
		if err == nil {
			d.Sampled = sampled
			w.trainer.Use(d)
		}
		return err
	}
	return nil
}

// erasedFrom reports whether documents of a sample have been erased since.
func (w *Writer) erasedFrom(l *segment.Listing, sampled segment.Run) (bool, error) {
	for _, r := range l.Rewrites {
		if !r.Overlaps(sampled) || r.Generation <= sampled.Generation {
			continue
		}
		s, err := w.openSealed(l, r.First)
		if err != nil {
			return false, err
		}
		s.Close()
		if s.Header.Erases {
			return true, nil
		}
	}
	return false, nil
}

// dictionaryOf returns the dictionary of a segment and the segments that it was trained
// from, nil if it has none of the Writer's codec.
func (w *Writer) dictionaryOf(l *segment.Listing, n SegmentID) ([]byte, segment.Run, error) {
	s, err := w.openSealed(l, n)
	if err != nil {
		return nil, segment.Run{}, err
	}
	defer s.Close()
	if s.Header.Codec != w.codec.ID {
		return nil, segment.Run{}, nil
	}
	content, err := s.Dictionary()
	return content, s.Header.Sampled, err
}
