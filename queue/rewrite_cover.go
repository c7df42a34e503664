package queue

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	"docstore/internal/vfs"
)

// covering are the rewrites by name that have the documents of segment n, the
// one that counts first.
func (l *listing) covering(n SegmentID) []rewriteRun {
	var found []rewriteRun
	end := sort.Search(len(l.rewrites), func(i int) bool { return l.rewrites[i].first > n })
	for i := end - 1; i >= 0 && l.reach[i] >= n; i-- {
		if l.rewrites[i].covers(n) {
			found = append(found, l.rewrites[i])
		}
	}
	slices.SortFunc(found, rewriteRun.compare)
	return found
}

// compare orders rewrites of the same segment: the one to be read comes first.
func (r rewriteRun) compare(other rewriteRun) int {
	return cmp.Or(cmp.Compare(other.generation, r.generation), cmp.Compare(other.last, r.last), cmp.Compare(r.first, other.first))
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

// Settled returns up to where the queue has to be read to know what became of all
// that a rewrite has left out, as of GoneError. The file is a rewrite that is whole.
func Settled(fsys vfs.FS, path string, first SegmentID) (Position, error) {
	s, err := openSegmentFile(fsys, path, first)
	if err != nil {
		return Position{}, err
	}
	defer s.file.Close()
	if s.relocations == nil {
		return Position{}, fmt.Errorf("queue: %s is no rewrite", path)
	}
	return Position{Queue: s.header.queue, Next: s.relocations.settled}, nil
}

// DropReplaced closes the files that documents are fetched from and that a rewrite has
// replaced: what the rewrite has left out is no longer served, and the space of files
// that were removed is free again. Tail does so for the rewrites that it reads; call it
// now and then for the others.
func (r *Reader) DropReplaced() error {
	l, err := r.list()
	if err != nil {
		return err
	}
	for run := range r.files.replacedBy(&l) {
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
