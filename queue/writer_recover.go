package queue

import (
	"errors"
	"log/slog"

	"docstore/internal/vfs"
)

// recoverSegment seals the segment that a writer left open when it stopped
// without closing: cut behind its last whole block, marked or not, it gets the
// footer it would have had. Nothing is ever appended to it again: replicas may
// have copied bytes that are cut away here.
//
// What stands before a commit mark was durable before the mark was written, so
// damage there is no consequence of the stop. It is an error, and the file is
// left alone.
func recoverSegment(fsys vfs.FS, dir string, n SegmentID, logger *slog.Logger) error {
	name := segmentPath(dir, n, openSuffix)
	s, err := openSegmentFile(fsys, name, n)
	if errors.Is(err, errIncomplete) {
		return &CorruptionError{Path: name, Segment: n, Reason: "open segment has no header"}
	}
	if err != nil {
		return err
	}
	w, whole, err := s.lastWhole()
	s.file.Close()
	if err != nil {
		return err
	}
	file, err := fsys.OpenAppend(name)
	if err != nil {
		return err
	}
	if whole { // only the new name was missing
		err = file.Sync()
		if closing := file.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
		return rename(fsys, dir, n)
	}
	lost := s.info.Size - w.next
	logger.Warn("sealing a segment that was not closed", "path", name,
		"entries", w.seen.entries, "bytes", w.next, "unfinished_bytes", lost)
	if lost > 0 {
		if err := file.Truncate(w.next); err != nil {
			file.Close()
			return err
		}
	}
	sw := &segmentWriter{
		fs: fsys, dir: dir, file: file, header: s.header, size: w.next, chain: w.chain, totals: w.seen,
	}
	_, err = sw.seal()
	return err
}

// lastWhole finds where the segment's last whole block or mark ends. Blocks
// behind the last commit mark count if their documents are whole, too. whole
// tells that the segment is complete, footer and all.
func (s *segmentFile) lastWhole() (w *walk, whole bool, err error) {
	var b block
	w = s.newWalk()
	if err = w.advance(s, &b); err == nil {
		return w, true, nil
	}
	if err := s.damage(w.next, err); !errors.Is(err, errIncomplete) {
		return nil, false, err
	}
	end := w.next
	w.rewind()
	for w.next < end {
		if _, err := s.frame(&b, w.next); err != nil {
			return nil, false, err
		}
		bad, err := s.checkDocuments(&b, w.next, nil)
		if err != nil {
			return nil, false, err
		}
		if len(bad) > 0 {
			break
		}
		w.pass(&b)
	}
	return w, false, nil
}
