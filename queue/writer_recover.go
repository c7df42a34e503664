package queue

import (
	"errors"
	"log/slog"
	"path/filepath"

	"docstore/internal/vfs"
)

// recoverSegment seals the segment that a writer left open when it stopped
// without closing: cut behind its last whole block, marked or not, it gets the
// footer it would have had. Nothing is ever appended to it again: replicas may
// have copied bytes that are cut away here.
//
// What stands before a commit mark was durable before the mark was written, so
// damage there is no consequence of the stop. It is an error, and the file is
// left alone. Of all that no mark vouches for nobody knows whether the disk has it,
// even where it can be read: see writeAgain.
//
// A segment that does not hold everything before the position end, which is one of
// its own or zero, is an older copy: that is ErrIncomplete.
func recoverSegment(fsys vfs.FS, dir string, n SegmentID, end Position, logger *slog.Logger) error {
	name := segmentPath(dir, n, openSuffix)
	s, err := openSegmentFile(fsys, name, n)
	if errors.Is(err, errIncomplete) {
		return &CorruptionError{Path: name, Segment: n, Reason: "open segment has no header"}
	}
	if err != nil {
		return err
	}
	defer s.file.Close()
	w, err := s.lastMark()
	if err != nil {
		return err
	}
	if end.Next.Segment == n {
		if err := s.reaches(end); err != nil {
			return err
		}
	}
	file, err := fsys.OpenAppend(name)
	if err != nil {
		return err
	}
	sw := &segmentWriter{fs: fsys, dir: dir, file: file, header: s.header}
	if err := s.writeAgain(file, max(w.next-markBytes, s.header.firstFrame())); err != nil {
		sw.close()
		return err
	}
	if s.footer != nil { // only the new name was missing
		return sw.finish()
	}
	if err := w.passWhole(s); err != nil {
		sw.close()
		return err
	}
	lost := s.info.Size - w.next
	logger.Warn("sealing a segment that was not closed", "path", name,
		"entries", w.seen.entries, "bytes", w.next, "unfinished_bytes", lost)
	if lost > 0 {
		if err := file.Truncate(w.next); err != nil {
			sw.close()
			return err
		}
	}
	sw.size, sw.chain, sw.totals = w.next, w.chain, w.seen
	_, err = sw.seal()
	return err
}

// lastMark returns a walk that stands behind the segment's last commit mark, or before
// its footer, with everything before that verified but documents.
func (s *segmentFile) lastMark() (*walk, error) {
	var b block
	w := s.newWalk()
	if err := w.advance(s, &b); err != nil {
		if err := s.damage(w.next, err); !errors.Is(err, errIncomplete) {
			return nil, err
		}
	}
	w.rewind()
	return w, nil
}

// reaches checks that the segment has a block that ends at the position, and all
// before it.
func (s *segmentFile) reaches(end Position) error {
	var b block
	w := s.newWalk()
	for w.next < int64(end.Next.Block) {
		kind, err := w.step(s, &b)
		if err != nil && !isContent(err) {
			return err
		}
		if err != nil || kind == frameFooter {
			break
		}
	}
	if w.next == int64(end.Next.Block) && w.chain == end.Proof.Chain {
		return nil
	}
	return incomplete(filepath.Dir(s.path), Address{Segment: s.number, Block: uint32(min(w.next, int64(end.Next.Block)))},
		"%s has fewer entries than it had, or others: they reached to %s", s.path, end.Next)
}

// writeAgain writes all from an offset to the end over itself. A writer whose sync
// failed has left pages of which reads show what it wrote, and which the kernel calls
// clean although the disk has not got them: no sync would write them, and none would
// say so. Now they are to be written like any others.
//
// It comes before anything there is verified: what could be read once may be gone the
// next time, until it is written again.
func (s *segmentFile) writeAgain(file vfs.File, from int64) error {
	buffer := make([]byte, max(0, min(scanBytes, s.info.Size-from)))
	for from < s.info.Size {
		window := buffer[:min(scanBytes, s.info.Size-from)]
		if err := s.readAt(window, from); err != nil {
			return err
		}
		if _, err := file.WriteAt(window, from); err != nil {
			return err
		}
		from += int64(len(window))
	}
	return nil
}

// passWhole goes on behind the last whole block of the file. Where no mark vouches for
// a block its documents have to be whole, too.
func (w *walk) passWhole(s *segmentFile) error {
	var b block
	for {
		kind, err := s.frame(&b, w.next)
		if err == nil && kind == frameBlock {
			err = w.chained(s, "block", b.previous)
		}
		if isContent(err) || err == nil && kind != frameBlock {
			return nil
		}
		if err != nil {
			return err
		}
		bad, err := s.checkDocuments(&b, w.next, nil)
		if err != nil || len(bad) > 0 {
			return err
		}
		w.pass(&b)
	}
}
