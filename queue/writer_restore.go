package queue

import (
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/errors"
)

// restore determines where the queue continues. It seals a segment that was left open,
// and returns the head of the directory afterwards.
func (w *Writer) restore() (*headFile, error) {
	l, err := list(w.options.FS, w.dir)
	if err != nil {
		return nil, err
	}
	before, err := w.readHead(&l)
	if err != nil {
		return nil, err
	}
	for _, name := range l.unfinished {
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
	if w.mu.last = l.last(); w.mu.last == 0 {
		w.mu.queue, err = w.options.newQueueID()
		return &headFile{Head: Head{Queue: w.mu.queue}, fs: w.options.FS, dir: w.dir, now: w.options.headTime}, err
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
	head, err := headOf(w.options.FS, w.dir, w.options.headTime)
	if err == nil {
		w.mu.end = head.End.Next
	}
	return head, err
}

// recoverOpen seals the segment that was left open. If the position is in it, everything
// before the position must exist.
func (w *Writer) recoverOpen(l *listing, end Position) error {
	for _, n := range l.numbers {
		if l.sealed[n] {
			continue
		}
		s, _, err := l.openCovering(w.options.FS, w.dir, n)
		if err != nil {
			return err
		}
		if s != nil { // a rewrite of a repair or truncation replaces it
			s.close()
			continue
		}
		if l.after(n) {
			return errors.Newf("segment %d is not sealed but later segments exist: restore %s", n, segmentPath(w.dir, n, sealedSuffix))
		}
		if err := recoverSegment(w.options.FS, w.dir, n, end, w.options.Logger); err != nil {
			return err
		}
	}
	return nil
}

// openSealed opens the file of a segment: the rewrite that replaces it, or one that must
// have a footer.
func (w *Writer) openSealed(l *listing, n SegmentID) (*segmentFile, error) {
	s, damage, err := l.openCovering(w.options.FS, w.dir, n)
	if s != nil || err != nil {
		return s, err
	}
	name := segmentPath(w.dir, n, sealedSuffix)
	s, err = openSegmentFile(w.options.FS, name, n)
	switch {
	case errors.Is(err, fs.ErrNotExist) && damage != nil:
		return nil, damage
	case err == nil && s.footer == nil:
		s.close()
		err = errIncomplete
	}
	if errors.Is(err, errIncomplete) {
		err = &CorruptionError{Path: name, Segment: n, Reason: "sealed segment is incomplete"}
	}
	return s, err
}

func (w *Writer) restoreLast(l *listing) error {
	s, err := w.openSealed(l, w.mu.last)
	if err != nil {
		return err
	}
	defer s.close()
	w.mu.queue, w.mu.lastRaw = s.header.queue, s.footer.raw
	return nil
}

// restoreCursor reads the cursor of the last block of the queue.
func (w *Writer) restoreCursor(l *listing) error {
	for _, n := range slices.Backward(l.places()) {
		s, err := w.openSealed(l, n)
		if err != nil {
			return err
		}
		var table relocations
		err = s.chainInto(&table)
		s.close()
		if err != nil {
			return err
		}
		if s.footer.blocks > 0 || len(table.cursor) > 0 {
			w.mu.cursor = slices.Clone(table.cursor)
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
func (w *Writer) restoreDictionary(l *listing) error {
	if w.options.Group != nil || w.trainer.off() {
		return nil
	}
	places := l.places()
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
		d, err := newDictionary(w.codec, content)
		if err == nil {
			d.sampled = sampled
			w.trainer.use(d)
		}
		return err
	}
	return nil
}

// erasedFrom reports whether documents of a sample have been erased since.
func (w *Writer) erasedFrom(l *listing, sampled rewriteRun) (bool, error) {
	for _, r := range l.rewrites {
		if !r.overlaps(sampled) || r.generation <= sampled.generation {
			continue
		}
		s, err := w.openSealed(l, r.first)
		if err != nil {
			return false, err
		}
		s.close()
		if s.header.erases {
			return true, nil
		}
	}
	return false, nil
}

// dictionaryOf returns the dictionary of a segment and the segments that it was trained
// from, nil if it has none of the Writer's codec.
func (w *Writer) dictionaryOf(l *listing, n SegmentID) ([]byte, rewriteRun, error) {
	s, err := w.openSealed(l, n)
	if err != nil {
		return nil, rewriteRun{}, err
	}
	defer s.close()
	if s.header.codec != w.codec.ID {
		return nil, rewriteRun{}, nil
	}
	content, err := s.dictionary()
	return content, s.header.sampled, err
}
