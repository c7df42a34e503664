package queue

import (
	"errors"
	"log/slog"
	"path/filepath"

	"docstore/internal/vfs"
)

// recoverSegment seals a segment that was left open by a crash: it cuts the file after
// its last whole block, marked or not, and adds the footer. Nothing is ever appended to
// the segment, because replicas may have copied the bytes that were cut.
//
// Everything before a commit mark was durable before the mark was written, so damage
// there is not a result of the crash. It is an error, and the file is not changed. Bytes
// after the last mark may not be on the disk, even if they can be read: see writeAgain.
//
// end is a position in the segment, or zero. A segment without everything before it is an
// older copy: ErrIncomplete.
func recoverSegment(fsys vfs.FS, dir string, n SegmentID, end Position, logger *slog.Logger) error {
	name := segmentPath(dir, n, openSuffix)
	s, err := openSegmentFile(fsys, name, n)
	if errors.Is(err, errIncomplete) {
		return &CorruptionError{Path: name, Segment: n, Reason: "open segment has no header"}
	}
	if err != nil {
		return err
	}
	defer s.close()
	w, err := s.lastMark()
	if err != nil {
		return err
	}
	if end.Next.Segment == n {
		if err := reaches(s, end); err != nil {
			return err
		}
	}
	return s.sealAgain(fsys, w, logger)
}

// sealAgain writes the end of an open segment again and seals it after its last whole block. w
// is at the last commit mark.
func (s *segmentFile) sealAgain(fsys vfs.FS, w *walk, logger *slog.Logger) error {
	file, err := fsys.OpenAppend(s.path)
	if err != nil {
		return err
	}
	sw := &segmentWriter{fs: fsys, dir: filepath.Dir(s.path), file: file, header: s.header}
	if err := s.writeAgain(file, max(w.next-markBytes, s.header.firstFrame())); err != nil {
		sw.close()
		return err
	}
	if s.footer != nil { // the crash was before the rename
		return sw.finish()
	}
	if err := w.passWhole(s); err != nil {
		sw.close()
		return err
	}
	lost := s.info.Size - w.next
	logger.Warn("sealing a segment that was not closed", "path", s.path,
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

// lastMark returns a walk at the end of the segment's last commit mark, or at its footer,
// with everything before it verified except documents.
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

// reaches checks that the segment has the block that ends at the position, and everything
// before it.
func reaches(s *segmentFile, end Position) error {
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
		"%s has fewer or other entries than before: they ended at %s", s.path, end.Next)
}

// writeAgain rewrites the bytes from an offset to the end of the file. After a failed
// sync the kernel may mark pages as clean although the disk does not have them: reads
// return them, and no later sync writes them or reports an error. Rewriting makes the
// pages dirty again.
//
// It runs before the bytes are verified, because until they are rewritten a later read
// may not return them.
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

// passWhole moves past the last whole block of the file. A block after the last mark
// counts only if its documents are whole, too.
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
