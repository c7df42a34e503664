package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// OpenCovering is listing.OpenCovering with the current listing.
func (r *Reader) openCovering(n SegmentID) (s *segment.File, damage, err error) {
	l, err := r.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // the directory has not arrived
	}
	if err != nil {
		return nil, nil, err
	}
	return l.OpenCovering(r.options.FS, r.dir, n)
}

// DropReplaced closes open files that a rewrite has replaced, so that dropped entries are
// no longer served and the space of removed files is released. Tail does this for the
// rewrites that it reads; call DropReplaced from time to time for the others.
func (r *Reader) DropReplaced() error {
	l, err := r.list()
	if err != nil {
		return err
	}
	for run := range r.files.ReplacedBy(&l) {
		s, err := segment.Open(r.options.FS, run.Path(r.dir), run.First)
		switch {
		case err == nil:
			s.Close()
			r.files.Drop(run)
		case !segment.IsContent(err) && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// Rewrite describes a rewrite in the directory.
type Rewrite struct {
	First, Last SegmentID // of the segments that it replaces
	Generation  uint32
	// Settled is the position up to which the queue has to be read for a GoneError of the
	// rewrite to be definite; zero: the file is not whole or cannot be read.
	Settled Position
}

// settledCache holds the descriptions of the rewrites in a directory. Their files do not
// change.
type settledCache struct {
	sync.Mutex
	listed *cachedListing // all was described from this listing
	all    []Rewrite
	known  map[string]settledFile // by name
}

// settledFile is the description of a whole rewrite, and its file.
type settledFile struct {
	info vfs.Info
	Rewrite
}

// Rewrites describes the rewrites in the directory. Quarantined ones are included, because
// their documents are served. The slice must not be changed.
func (r *Reader) Rewrites() ([]Rewrite, error) {
	if r.isClosed() {
		return nil, ErrClosed
	}
	c := &r.settled
	c.Lock()
	defer c.Unlock()
	l, err := r.listed.look(true)
	if err != nil {
		return nil, fmt.Errorf("queue: listing the directory: %w", err)
	}
	if l == c.listed {
		return c.all, nil
	}
	c.listed, c.all = l, make([]Rewrite, 0, len(l.Rewrites))
	known := make(map[string]settledFile, len(l.Rewrites))
	for _, run := range l.Rewrites {
		c.add(r, known, run.Name(), run)
	}
	for _, name := range l.Ignored {
		before, quarantined := strings.CutSuffix(name, QuarantineSuffix)
		if run, ok := segment.ParseRewriteName(before); ok && quarantined {
			c.add(r, known, name, run)
		}
	}
	c.known = known
	return c.all, nil
}

// add describes the rewrite in a file, unless the file was removed meanwhile.
func (c *settledCache) add(r *Reader, known map[string]settledFile, name string, run segment.Run) {
	path := filepath.Join(r.dir, name)
	info, err := r.options.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	f := c.known[name]
	if err != nil || !segment.SameFile(f.info, info) {
		f = settledFile{info, Rewrite{First: run.First, Last: run.Last, Generation: run.Generation}}
		f.Settled, err = settledOf(r.options.FS, path, run.First)
	}
	if err == nil {
		known[name] = f
	}
	c.all = append(c.all, f.Rewrite)
}

// settledOf returns the Settled of a rewrite.
func settledOf(fsys vfs.FS, path string, first SegmentID) (Position, error) {
	s, err := segment.Open(fsys, path, first)
	if err != nil {
		return Position{}, err
	}
	defer s.Close()
	if s.Relocations == nil {
		return Position{}, s.Corruption(0, errors.New("it is not a rewrite"))
	}
	return Position{Queue: s.Header.Queue, Next: s.Relocations.Settled}, nil
}

// describeRewrite describes an open rewrite.
func describeRewrite(s *segment.File) Rewrite {
	run := s.Header.Rewrites
	return Rewrite{run.First, run.Last, run.Generation, Position{Queue: s.Header.Queue, Next: s.Relocations.Settled}}
}
