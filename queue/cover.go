package queue

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"docstore/internal/vfs"
)

// covering are the rewrites by name that have the documents of segment n, the
// one that counts first.
func (l *listing) covering(n SegmentID) []rewriteRun {
	var found []rewriteRun
	for _, r := range l.rewrites {
		if r.covers(n) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b rewriteRun) int { return cmp.Compare(b.generation, a.generation) })
	return found
}

// openCovering opens the rewrite that takes the place of segment n, nil if there
// is none that is whole. A damaged one is passed over, too: what it replaces may
// still be there; where nothing else is, the damage is what is reported.
func (l *listing) openCovering(fsys vfs.FS, dir string, n SegmentID) (s *segmentFile, damage, err error) {
	for _, run := range l.covering(n) {
		s, err := openSegmentFile(fsys, run.path(dir), n)
		switch {
		case err == nil && s.header.rewrites != run:
			s.file.Close()
			damage = s.corruption(0, errors.New("header is that of another rewrite"))
		case err == nil:
			return s, damage, nil
		case errors.Is(err, ErrCorrupt):
			damage = err
		case !errors.Is(err, errIncomplete) && !errors.Is(err, fs.ErrNotExist):
			return nil, damage, err
		}
	}
	return nil, damage, nil
}

// openCovering is listing.openCovering of the files as they are now.
func (r *Reader) openCovering(n SegmentID) (s *segmentFile, damage, err error) {
	l, err := r.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // nor is the directory there as yet
	}
	if err != nil {
		return nil, nil, err
	}
	return l.openCovering(r.options.FS, r.dir, n)
}

// DropReplaced lets go of the files that documents are fetched from and that a
// rewrite has taken the place of: what the rewrite has left out is not served any
// more, and the space of files that were removed is given back. Tail does so for
// the rewrites that it reads; call it now and then for the others.
func (r *Reader) DropReplaced() error {
	l, err := r.list()
	if err != nil {
		return err
	}
	for _, run := range l.rewrites {
		if !r.files.holdsReplaced(run) {
			continue
		}
		s, err := openSegmentFile(r.options.FS, run.path(r.dir), run.first)
		switch {
		case err == nil:
			s.file.Close()
			r.files.drop(run)
		case !isContent(err) && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// holdsReplaced tells whether the cache has a file that a rewrite stands for.
func (c *fileCache) holdsReplaced(run rewriteRun) bool {
	for n, f := range *c.current.Load() {
		if run.covers(n) && f.header.rewrites.generation < run.generation {
			return true
		}
	}
	return false
}

// drop takes the originals and the older rewrites out of the cache that a rewrite
// stands for: what it does not hold is not to be served any more.
func (c *fileCache) drop(run rewriteRun) {
	var dropped []*cachedFile
	c.mu.Lock()
	next := maps.Clone(*c.current.Load())
	for n, f := range next {
		if run.covers(n) && f.header.rewrites.generation < run.generation {
			dropped = append(dropped, f)
			delete(next, n)
		}
	}
	c.current.Store(&next)
	c.mu.Unlock()
	for _, f := range dropped {
		c.put(f)
	}
}

// askRewrite looks for the next block in the rewrite that takes the place of the
// segment, if there is one. A segment that is being read already is read as far
// as it goes; now and then it is looked whether it has been repaired, so that it
// goes no further.
func (t *tailer) askRewrite(b *tailBlock) (bool, error) {
	if t.rewrite == nil {
		if t.files[0].file != nil || t.files[1].file != nil {
			if now := time.Now(); now.Before(t.rewriteDue) {
				return false, nil
			}
		}
		t.rewriteDue = time.Now().Add(rewriteInterval)
		s, _, err := t.r.openCovering(t.segment)
		if err != nil || s == nil {
			return false, err
		}
		t.rewrite, t.caughtUp = s, false
		t.r.files.drop(s.header.rewrites)
	}
	s := t.rewrite
	if err := t.enterRewrite(s); err != nil {
		return false, err
	}
	t.queue, t.known = s.header.queue, true
	place := Address{Segment: t.segment, Block: uint32(t.offset)}
	t.files[0].close()
	t.files[1].close()
	for i := s.relocations.from(place); i < s.relocations.count(); i++ {
		at, offset := s.relocations.row(i)
		if _, err := s.frame(&b.block, offset); err != nil {
			return false, err
		}
		b.at, b.end = b.origin(at)
		if b.at != at {
			return false, s.corruption(offset, errors.New("block is not the one that the relocations name"))
		}
		b.first, b.queue = 0, s.header.queue
		for at == place && b.first < b.count && b.index(b.first) < t.index {
			b.first++
		}
		t.segment, t.offset, t.index = at.Segment, int64(b.end), 0
		if b.first < b.count {
			t.chainKnown, t.previousKnown = false, false
			t.unchanged = time.Time{}
			return true, nil
		}
	}
	t.segment, t.offset, t.index, t.chainKnown = s.header.rewrites.last+1, 0, 0, false
	t.previous, t.previousKnown = s.relocations.last, true
	t.leaveRewrite()
	return false, nil
}

// rewriteInterval is how often it is looked whether there is a rewrite of the
// segment that is being read.
const rewriteInterval = time.Second

// enterRewrite is enter for a rewrite: only its first segment has a segment
// before that its header knows.
func (t *tailer) enterRewrite(s *segmentFile) error {
	known := t.previousKnown
	t.previousKnown = known && t.segment == s.header.rewrites.first
	err := t.enter(s)
	t.previousKnown = known
	return err
}

func (t *tailer) leaveRewrite() {
	if t.rewrite != nil {
		t.rewrite.file.Close()
		t.rewrite = nil
	}
}
