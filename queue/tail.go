package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"docstore/internal/invariants"
	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// Tail calls fn for each committed entry after the position, once and in order, across
// segments, and continues with entries that are appended or arrive later. It reads the
// blocks' tables and no documents. fn runs in Tail's goroutine.
//
// Tail waits for a missing segment, and for missing bytes at the end of one. It returns
// only with an error:
//
//   - that of ctx or fn, or ErrClosed;
//   - *CorruptionError: the file is damaged at the position. After the file has been copied
//     again, a Tail from the Next of the last entry continues;
//   - ErrForked: the files belong to another queue, or do not continue the content
//     that the position's Proof identifies;
//   - ErrDiverged: the position is after the end of its sealed segment;
//   - *TruncatedError: entries before the position were truncated;
//   - ErrNewerVersion, and errors of the file system.
func (r *Reader) Tail(ctx context.Context, from Position, fn func(Entry) error) error {
	return r.follow(ctx, from, fn, true)
}

// Scan is Tail without waiting: it returns nil after the last committed entry. If a
// segment is missing or incomplete and a later one exists, it returns ErrUnavailable,
// because it has not read all entries.
func (r *Reader) Scan(ctx context.Context, from Position, fn func(Entry) error) error {
	return r.follow(ctx, from, fn, false)
}

// follow delivers each block after it has looked for the next one, which determines More
// of the block's last entry.
func (r *Reader) follow(ctx context.Context, from Position, fn func(Entry) error, wait bool) error {
	t := newTailer(r, from)
	defer t.close()
	if wait {
		t.onRewrite = r.options.OnRewrite
	}
	current, next := &t.blocks[0], &t.blocks[1]
	var gap error // of a scan, unless the writer has continued since the end was reached
	for {
		before := t.segment
		found, err := t.next(current)
		if err != nil {
			return err
		}
		if gap != nil && !found && t.segment == before {
			return gap
		}
		for found {
			var ahead error
			if found, ahead = t.next(next); ahead != nil {
				found = false
			}
			if err := t.deliver(ctx, current, found, fn); err != nil {
				return err
			}
			if ahead != nil {
				return ahead
			}
			current, next = next, current
		}
		if !wait {
			if gap = t.gap(); gap == nil {
				return nil
			}
			continue
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
}

// tailBlock is a block to be delivered.
type tailBlock struct {
	segment.Block
	at    Address  // of the block
	next  Address  // of the first entry after it
	first int      // the first entry that was not delivered
	queue [16]byte // the queue's id
	proof Proof    // of positions in it and after it
	file  uint64   // see Place
}

// end returns the position after the block.
func (b *tailBlock) end() Position { return Position{Queue: b.queue, Next: b.next, Proof: b.proof} }

// tailer is the state of a Tail. Its place is after the last block that next returned.
type tailer struct {
	r      *Reader
	blocks [2]tailBlock
	queue  [16]byte
	known  bool // queue is known

	segment SegmentID
	offset  int64 // of the next frame; 0 is the first frame of the segment
	index   uint16
	// chain is the checksum of the block before offset, or with index > 0 of the block at
	// offset; 0: unknown.
	chain uint32
	// previous is the digest of the previous segment; zero: unknown.
	previous FooterDigest
	// reached: a file of the segment contains the place.
	reached bool

	files   [2]tailFile   // of segment: sealed, open
	rewrite *segment.File // read instead of the segment's own files; nil: none
	// rewriteDue is the time of the next check for a rewrite while the segment's own file
	// is read.
	rewriteDue time.Time
	examined   segment.Run                  // the last rewrite that does not truncate found
	delivered  Position                     // Next of the last delivered entry, or the start
	found      Position                     // after the last block that next returned, which may not be delivered yet
	caughtUp   bool                         // OnCaughtUp was called since then
	onRewrite  func(Rewrite, Address) error // nil: none
	// unchanged is the time since which a sealed segment without footer has not changed;
	// zero: there is no such segment.
	unchanged time.Time

	watch   *vfs.Watch // nil: not started, or not available
	watched bool       // watch was asked for
}

// tailFile is one of the two files that can hold a segment.
type tailFile struct {
	suffix string
	info   vfs.Info      // when it was last looked at; zero: it is not there
	file   *segment.File // nil: not there, or without a header yet
	walk   *segment.Walk // of a file without footer
	// quiet is the offset of missing or wrong bytes without anything valid after them.
	// The file is not searched again before it changes.
	quiet int64
}

func newTailer(r *Reader, from Position) *tailer {
	t := &tailer{
		r: r, queue: from.Queue, known: from.Queue != [16]byte{},
		segment: max(from.Next.Segment, 1), offset: int64(from.Next.Block), index: from.Next.Index,
		chain: from.Proof.Chain, previous: from.Proof.Footer, delivered: from, found: from,
	}
	t.files[0].suffix, t.files[1].suffix = segment.SealedSuffix, segment.OpenSuffix
	return t
}

func (t *tailer) close() {
	t.closeFiles()
	if t.watch != nil {
		_ = t.watch.Close() // it is only read
	}
}

func (t *tailer) closeFiles() {
	for i := range t.files {
		t.files[i].close()
	}
	t.closeRewrite()
}

func (f *tailFile) close() {
	if f.file != nil {
		f.file.Close()
	}
	*f = tailFile{suffix: f.suffix}
}

// next finds the next committed block without waiting; false: there is none yet. It reads
// both files of a segment, the sealed one first, and returns an error only if neither has
// the block.
func (t *tailer) next(b *tailBlock) (bool, error) {
	for {
		if t.r.isClosed() {
			return false, ErrClosed
		}
		t.reached = false
		before := t.segment
		if found, err := t.nextInRewrite(b); found || err != nil {
			return found, err
		}
		if t.segment != before {
			continue
		}
		var failed error
		for i, suffix := range segment.Suffixes {
			f := &t.files[0]
			switch {
			case suffix == segment.OpenSuffix:
				f = &t.files[1]
			case i > 0 && (t.files[0].info != vfs.Info{} || t.files[1].info != vfs.Info{}):
				continue
			}
			found, err := t.nextIn(f, b)
			if found {
				t.unchanged = time.Time{}
				return true, nil
			}
			if t.segment != before { // sealed and done
				failed = nil
				break
			}
			if errors.Is(err, ErrForked) || errors.Is(err, ErrDiverged) {
				return false, err
			}
			if err != nil && failed == nil {
				failed = err
			}
		}
		if failed != nil || t.segment == before {
			return false, failed
		}
		t.closeFiles()
	}
}

// nextIn looks for the next block in a file.
func (t *tailer) nextIn(f *tailFile, b *tailBlock) (bool, error) {
	if err := t.open(f); err != nil || f.file == nil {
		return false, err
	}
	s := f.file
	if err := t.checkContinues(s); err != nil {
		return false, err
	}
	end, damage := f.committed(&b.Block)
	if damage != nil && !segment.IsContent(damage) {
		return false, damage
	}
	offset, chain := t.place(s)
	if s.Footer != nil && offset > end || offset < s.Header.FirstFrame() {
		return false, t.diverged(s, "its frames lie from %d to %d", s.Header.FirstFrame(), end)
	}
	t.reached = t.reached || offset < end || offset == end && t.index == 0
	for offset < end {
		kind, err := s.Frame(&b.Block, offset)
		if err != nil {
			err = t.mismatch(s, offset, err)
			if f.walk != nil && errors.Is(err, segment.ErrPartial) {
				return false, nil // it was there before: the file is being replaced
			}
			return false, err
		}
		if kind == segment.FrameMark {
			if chain != 0 && b.MarkedChain() != chain {
				return false, t.mismatch(s, offset, s.Corruption(offset, errors.New("commit mark follows another block")))
			}
			offset += segment.MarkBytes
			continue
		}
		if err := t.takeBlock(s, b, offset, chain); err != nil {
			return false, err
		}
		if b.first < b.Count {
			return true, nil
		}
		offset, chain = t.offset, t.chain // the position was after the block's last entry
	}
	switch {
	case damage != nil:
		return false, damage
	case s.Footer == nil && f.walk != nil && offset == end && chain != 0 && f.walk.Marked.Chain != chain:
		return false, t.forked(s, errors.New("the last committed block is another one")) // its frames are whole
	case s.Footer == nil:
		return false, nil
	case t.index > 0:
		return false, t.diverged(s, "its frames end at %d", end)
	case chain != 0 && s.Footer.Chain != chain:
		return false, t.mismatch(s, end, s.Corruption(end, errors.New("footer follows another block")))
	}
	t.queue, t.known = s.Header.Queue, true
	t.moveTo(t.segment+1, s.Footer.Digest())
	return false, nil
}

// takeBlock makes b the next block to deliver. It was read at offset; chain is the
// checksum of the previous block. All of its entries may have been delivered before:
// Truncate creates such a position if it cannot know the number of the block's entries.
func (t *tailer) takeBlock(s *segment.File, b *tailBlock, offset int64, chain uint32) error {
	switch {
	case t.index == 0 && chain != 0 && b.Previous != chain:
		return t.mismatch(s, offset, s.Corruption(offset, errors.New("block follows another block")))
	case t.index > 0 && t.chain != 0 && b.CRC != t.chain:
		return t.mismatch(s, offset, s.Corruption(offset, errors.New("block is another one")))
	case int(t.index) > b.Count || int(t.index) == b.Count && t.chain == 0:
		return t.diverged(s, "its block has %d entries", b.Count)
	}
	b.at = Address{Segment: t.segment, Block: uint32(offset)}
	b.next = Address{Segment: t.segment, Block: uint32(offset + b.Size())}
	b.first, b.queue, b.file = int(t.index), s.Header.Queue, s.Header.PlaceFile()
	b.proof = Proof{Footer: s.Header.Previous.Half(), Chain: b.CRC}
	t.offset, t.index, t.chain = int64(b.next.Block), 0, b.CRC
	t.queue, t.known = s.Header.Queue, true
	t.found = b.end()
	return nil
}

// MoveTo moves to the start of a segment. previous is the digest of the previous segment.
func (t *tailer) moveTo(n SegmentID, previous segment.Digest) {
	t.segment, t.offset, t.index, t.chain = n, 0, 0, 0
	t.previous = previous.Half()
}

func (t *tailer) diverged(s *segment.File, format string, args ...any) error {
	at := Address{Segment: t.segment, Block: uint32(t.offset), Index: t.index}
	return fmt.Errorf("%w: position %s is not in %s: "+format, append([]any{ErrDiverged, at, s.Path}, args...)...)
}

// mismatch interprets an error in a file at the tail's place. If every frame of the file
// up to there is whole and chained, the file is not damaged but belongs to another
// history.
func (t *tailer) mismatch(s *segment.File, offset int64, reason error) error {
	if !segment.IsContent(reason) {
		return reason
	}
	var b segment.Block
	for w := s.NewWalk(); w.Next <= offset; {
		kind, err := w.Step(s, &b)
		switch {
		case segment.IsContent(err):
			return reason
		case err != nil:
			return err
		case kind == segment.FrameFooter:
			return t.forked(s, reason)
		}
	}
	return t.forked(s, reason)
}

// forked is the error for an undamaged file that does not continue the entries before the
// tail's place. It does not wrap the reason, which may match ErrCorrupt.
func (t *tailer) forked(s *segment.File, reason error) error {
	at := Address{Segment: t.segment, Block: uint32(t.offset), Index: t.index}
	return fmt.Errorf("%w: %s does not continue the entries that were read before %s, it belongs to another history of the queue: %v",
		ErrForked, s.Path, at, reason.Error())
}

// place returns the tail's offset in a file, and the checksum of the previous block; 0:
// unknown.
func (t *tailer) place(s *segment.File) (offset int64, chain uint32) {
	switch {
	case t.offset == 0 || t.offset == s.Header.FirstFrame():
		return s.Header.FirstFrame(), s.Header.CRC
	case t.index > 0:
		return t.offset, 0
	}
	return t.offset, t.chain
}

// checkContinues checks that a file belongs to the queue and continues the previous segment.
func (t *tailer) checkContinues(s *segment.File) error {
	if t.known && s.Header.Queue != t.queue {
		return s.Forked(t.queue)
	}
	before := s.Before(t.segment).Half()
	if t.previous != (FooterDigest{}) && before != (FooterDigest{}) && before != t.previous {
		return fmt.Errorf("%w: segment %d in %s follows a segment with the digest %x, and the one that was read before it has %x: "+
			"it belongs to another history of the queue",
			ErrForked, t.segment, s.Path, before, t.previous)
	}
	return nil
}

// open opens or refreshes the file. It leaves f.file nil if the file does not exist or
// has no header yet.
func (t *tailer) open(f *tailFile) error {
	path := segment.Path(t.r.dir, t.segment, f.suffix)
	info, err := t.r.options.FS.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.close()
		return nil
	case err != nil:
		return err
	case segment.SameFile(info, f.info):
		return nil
	}
	t.unchanged = time.Time{}
	if f.file != nil && f.file.Footer == nil && info.ID == f.info.ID && info.Size >= f.info.Size {
		f.info, f.quiet = info, 0 // it has grown
		return f.file.Refresh()
	}
	f.close()
	s, err := segment.Open(t.r.options.FS, path, t.segment)
	switch {
	case errors.Is(err, segment.ErrPartial):
		f.info = info
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if t.files[0].file == nil && t.files[1].file == nil && t.delivered.Next.Segment == t.segment {
			t.caughtUp = false // the file may show that the place is the end
		}
		f.file, f.info = s, s.Info
	}
	return nil
}

// committed returns the end of the frames that may be delivered: the footer, the last
// commit mark, or damage, which is the error. With other errors the end is 0.
func (f *tailFile) committed(b *segment.Block) (int64, error) {
	s := f.file
	if s.Footer != nil {
		f.walk = nil
		return s.Limit(), nil
	}
	if f.walk == nil {
		f.walk = s.NewWalk()
	}
	w := f.walk
	err := w.Advance(s, b)
	if err == nil || w.Next == f.quiet {
		return w.Marked.End, nil
	}
	if !segment.IsContent(err) {
		return 0, err
	}
	if err := s.Damage(w.Next, err); !errors.Is(err, segment.ErrPartial) {
		return w.Next, err
	}
	f.quiet = w.Next
	return w.Marked.End, nil
}

// deliver calls fn for the entries of a block.
func (t *tailer) deliver(ctx context.Context, b *tailBlock, more bool, fn func(Entry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entry := Entry{Appended: time.UnixMilli(b.Appended), More: true}
	for i := b.first; i < b.Count; i++ {
		e := b.Entry(i)
		at := b.at
		at.Index = b.Index(i)
		following := at
		following.Index++
		if i == b.Count-1 {
			following = b.next
			entry.More = more
		}
		entry.ID = b.ID(e)
		entry.Address = at
		entry.Next = Position{Queue: b.queue, Next: following, Proof: b.proof}
		entry.Deleted = e.Deleted()
		entry.Expires = b.Expires(i)
		entry.StoredBytes = e.StoredBytes()
		entry.Place = b.PlaceOf(&e, b.file)
		if invariants.Enabled { // find callers that keep the id after fn returns
			entry.ID = bytes.Clone(entry.ID)
		}
		if err := fn(entry); err != nil {
			return err
		}
		if invariants.Enabled {
			invariants.Spoil(entry.ID)
		}
		t.delivered, t.caughtUp = entry.Next, false
	}
	return nil
}
