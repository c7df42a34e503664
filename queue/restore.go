package queue

import (
	"path/filepath"
	"slices"

	"github.com/cockroachdb/errors"
)

// restore finds out where the queue goes on.
func (w *Writer) restore() error {
	l, err := list(w.options.FS, w.dir)
	if err != nil {
		return err
	}
	for _, name := range l.unborn {
		if err := w.options.FS.Remove(filepath.Join(w.dir, name)); err != nil {
			return err
		}
	}
	for _, n := range l.numbers {
		if l.sealed[n] {
			continue
		}
		if l.after(n) {
			return errors.Newf("segment %d is not sealed though later ones are there: copy back %s", n, segmentPath(w.dir, n, sealedSuffix))
		}
		if err := recoverSegment(w.options.FS, w.dir, n, w.options.Logger); err != nil {
			return err
		}
	}
	w.mu.last = l.last()
	if w.mu.last == 0 {
		w.mu.queue, err = w.options.newQueueID()
		return err
	}
	if err := w.restoreLast(); err != nil {
		return err
	}
	if err := w.restoreCursor(l.numbers); err != nil {
		return err
	}
	return w.restoreDictionary(l.numbers)
}

// openSealed opens a segment that has to have a footer.
func (w *Writer) openSealed(n SegmentID) (*segmentFile, error) {
	name := segmentPath(w.dir, n, sealedSuffix)
	s, err := openSegmentFile(w.options.FS, name, n)
	if err == nil && s.footer == nil {
		s.file.Close()
		err = errIncomplete
	}
	if errors.Is(err, errIncomplete) {
		err = &CorruptionError{Path: name, Segment: n, Reason: "sealed segment is not whole"}
	}
	return s, err
}

func (w *Writer) restoreLast() error {
	s, err := w.openSealed(w.mu.last)
	if err != nil {
		return err
	}
	defer s.file.Close()
	w.mu.queue = s.header.queue
	w.restored = s.footer.digest()
	w.mu.lastRaw = s.footer.raw
	return nil
}

// restoreCursor reads the cursor of the last block there is.
func (w *Writer) restoreCursor(numbers []SegmentID) error {
	for _, n := range slices.Backward(numbers) {
		s, err := w.openSealed(n)
		if err != nil {
			return err
		}
		offset := int64(s.footer.lastBlock)
		var b block
		if offset > 0 {
			_, err = s.frame(&b, offset)
		}
		s.file.Close()
		if err != nil {
			return err
		}
		if offset > 0 {
			w.mu.cursor = slices.Clone(b.cursor())
			return nil
		}
	}
	return nil
}

// maxDictionaryLookback is how many segments back a dictionary is looked for.
const maxDictionaryLookback = 64

// restoreDictionary takes up the dictionary that the newest segment with one of
// this codec has.
func (w *Writer) restoreDictionary(numbers []SegmentID) error {
	if w.codec.train == nil || w.options.dictionaryBytes < 0 {
		return nil
	}
	for _, n := range slices.Backward(numbers[max(0, len(numbers)-maxDictionaryLookback):]) {
		content, err := w.dictionaryOf(n)
		if err != nil {
			w.options.Logger.Warn("no dictionary to go on with", "queue", w.dir, "error", err)
			return nil
		}
		if len(content) > 0 {
			w.mu.dictionary, err = newDictionary(w.codec, content)
			return err
		}
	}
	return nil
}

// dictionaryOf returns the dictionary of a segment, nil if it has none of the
// Writer's codec.
func (w *Writer) dictionaryOf(n SegmentID) ([]byte, error) {
	s, err := w.openSealed(n)
	if err != nil {
		return nil, err
	}
	defer s.file.Close()
	if s.header.codec != w.codec.id {
		return nil, nil
	}
	return s.dictionary()
}
