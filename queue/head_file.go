package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

const (
	// headInterval is the minimum time between two heads that are written because of
	// commits. It is also the maximum delay until a copy learns of new entries.
	headInterval = time.Second
	// headGroupInterval is headInterval in a group: heads of 64 shards each second would cost
	// as much as the commits.
	headGroupInterval = 10 * time.Second
	// headIdleInterval is the interval at which an idle Writer writes the head. Its time
	// shows a copy that the source is alive; a shorter interval would only cause
	// transfers.
	headIdleInterval = 10 * time.Second
)

// headFile maintains the head of a directory that is being written.
type headFile struct {
	Head
	fs      vfs.FS
	dir     string
	now     func() time.Time
	durable bool // the file on disk and its name are durable
}

// committed records that all blocks of a segment are committed.
func (h *headFile) committed(s *segment.Writer) {
	if s.End > 0 {
		h.End = Position{
			Queue: s.Header.Queue, Next: Address{Segment: s.Header.Segment, Block: uint32(s.End)},
			Proof: Proof{Footer: s.Header.Previous.Half(), Chain: s.Chain},
		}
	}
}

// refresh writes the head if the file is at least as old as the interval. It does not
// sync: after a power loss the file may be damaged.
func (h *headFile) refresh(interval time.Duration) error {
	if age := h.now().Sub(h.Time); h.Highest == 0 || 0 <= age && age < interval {
		return nil
	}
	return h.save(false)
}

// save replaces the file.
func (h *headFile) save(durably bool) error {
	h.Time, h.durable = time.UnixMilli(h.now().UnixMilli()), durably
	path := filepath.Join(h.dir, HeadName)
	if durably {
		return vfs.WriteFileAtomic(h.fs, path, h.encode())
	}
	temporary := path + ".new"
	if err := h.fs.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := h.fs.Create(temporary)
	if err != nil {
		return err
	}
	if _, err = file.Write(h.encode()); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return h.fs.Rename(temporary, path)
}

// RebuildHead writes the head file of a directory that is not being written again, from the
// directory's files, and makes it durable.
func RebuildHead(fsys vfs.FS, dir string, now func() time.Time) (Head, error) {
	h, err := headOf(fsys, dir, now)
	if err != nil {
		return Head{}, err
	}
	return h.Head, h.save(true)
}

// headOf returns the head of a directory that is not being written. Its file has yet to
// be written.
func headOf(fsys vfs.FS, dir string, now func() time.Time) (*headFile, error) {
	r, err := OpenReader(dir, &ReaderOptions{FS: fsys})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it only reads
	l, err := r.list()
	if err != nil {
		return nil, err
	}
	h := &headFile{fs: fsys, dir: dir, now: now}
	h.Highest, h.End = l.Last(), r.End()
	for _, n := range slices.Backward(l.Places()) {
		s, err := l.OpenWhole(r.options.FS, r.dir, n)
		if err != nil {
			return nil, err
		}
		h.Queue = s.Header.Queue
		if s.Footer != nil {
			h.Sealed, h.Digest = max(n, s.Header.Rewrites.Last), s.Digest()
		}
		s.Close()
		if s.Footer != nil {
			break
		}
	}
	return h, nil
}

// incomplete is an *IncompleteError.
func incomplete(dir string, keep any, format string, args ...any) error {
	return &IncompleteError{Dir: dir, Keep: fmt.Sprint(keep), Reason: fmt.Sprintf(format, args...)}
}

// readHead reads the head of the directory and refuses a directory that has less than it
// states. If the head is missing or damaged, it is created again from the directory
// without this check.
func (w *Writer) readHead(l *segment.Listing) (Head, error) {
	head, err := ReadHead(w.options.FS, w.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.Last() == 0:
		return Head{}, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrCorrupt):
		w.options.Logger.Warn("the head file is missing or damaged and is created again from the segments; "+
			"whether the newest segments were removed cannot be checked", "queue", w.dir, "error", err)
		return Head{}, nil
	case err != nil:
		return Head{}, err
	}
	return head, verifyHead(w.options.FS, w.dir, l, &head)
}

// verifyHead returns ErrIncomplete if the directory has less than the head states. It
// does not read an open segment.
func verifyHead(fsys vfs.FS, dir string, l *segment.Listing, head *Head) error {
	if last := l.Last(); last < head.Highest {
		return incomplete(dir, last, "segment %d is missing", last+1)
	}
	return head.VerifySealed(fsys, dir)
}

// VerifySealed returns ErrIncomplete if the directory lacks the last sealed segment that the
// head states, or has another one in its place.
func (h *Head) VerifySealed(fsys vfs.FS, dir string) error {
	if h.Sealed == 0 {
		return nil
	}
	l, err := segment.List(fsys, dir)
	if err != nil {
		return err
	}
	s, _, err := l.OpenCovering(fsys, dir, h.Sealed)
	if s == nil && err == nil {
		if !l.Sealed[h.Sealed] {
			return incomplete(dir, h.Sealed-1, "segment %d was sealed and is missing or open", h.Sealed)
		}
		s, err = segment.Open(fsys, segment.Path(dir, h.Sealed, segment.SealedSuffix), h.Sealed)
	}
	if err != nil {
		if segment.IsContent(err) {
			return nil // damage is reported elsewhere
		}
		return err
	}
	defer s.Close()
	switch {
	case s.Header.Queue != h.Queue:
		return s.Forked(h.Queue)
	case s.Footer == nil || s.Truncates(h.Sealed):
		return nil
	}
	if got := s.DigestOf(h.Sealed); got != (segment.Digest{}) && got != h.Digest {
		return incomplete(dir, h.Sealed-1, "%s is another segment than the one that was sealed: its footer has the digest %x, want %x",
			s.Path, got[:16], h.Digest[:16])
	}
	return nil
}
