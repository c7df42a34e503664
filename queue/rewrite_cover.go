package queue

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sort"

	"docstore/internal/vfs"
)

// covering returns the listed rewrites that have the documents of segment n, the one to
// be read first.
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

// openCovering opens the rewrite that replaces segment n, or returns nil if no whole one
// exists. It skips damaged rewrites, whose originals may still exist, and returns the
// damage.
func (l *listing) openCovering(fsys vfs.FS, dir string, n SegmentID) (s *segmentFile, damage, err error) {
	for _, run := range l.covering(n) {
		s, err := openSegmentFile(fsys, run.path(dir), n)
		switch {
		case err == nil && s.header.rewrites != run:
			s.close()
			damage = s.corruption(0, errors.New("header names another rewrite"))
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

// openCovering is listing.openCovering with the current listing.
func (r *Reader) openCovering(n SegmentID) (s *segmentFile, damage, err error) {
	l, err := r.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // the directory has not arrived
	}
	if err != nil {
		return nil, nil, err
	}
	return l.openCovering(r.options.FS, r.dir, n)
}

// DropReplaced closes open files that a rewrite has replaced, so that dropped entries are
// no longer served and the space of removed files is released. Tail does this for the
// rewrites that it reads; call DropReplaced from time to time for the others.
func (r *Reader) DropReplaced() error {
	l, err := r.list()
	if err != nil {
		return err
	}
	for run := range r.files.replacedBy(&l) {
		s, err := openSegmentFile(r.options.FS, run.path(r.dir), run.first)
		switch {
		case err == nil:
			s.close()
			r.files.drop(run)
		case !isContent(err) && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}
