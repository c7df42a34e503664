package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// SealedFile describes a file of a queue that does not change any more.
type SealedFile struct {
	Name        string
	First, Last SegmentID // the same in an original segment
	Size        int64     // bytes
	// Footer identifies the content: it covers the checksums of all blocks.
	Footer    FooterDigest
	Documents int64
	Deletes   int64
	// Settled is the address before which the queue decides about everything that a
	// rewrite has left out, as in GoneError; zero in an original.
	Settled Address
}

// Sealed describes the files that hold the queue from its first segment to the last
// sealed one: for each segment the rewrite that replaces it, or else the original. They
// are in the order of their segments. An error that matches ErrIncomplete names a segment
// that is missing before a sealed one.
func (r *Reader) Sealed() ([]SealedFile, error) {
	l, err := r.list()
	if err != nil {
		return nil, err
	}
	var files []SealedFile
	last := l.last()
	for n := SegmentID(1); n <= last; n++ {
		s, err := r.openWhole(&l, n)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errIncomplete) {
				err = fmt.Errorf("queue: segment %d in %s: %w (%w)", n, r.dir, ErrIncomplete, err)
			}
			return nil, err
		}
		f := describeSealed(s)
		s.file.Close()
		if f == nil && n == last {
			break // it is still written
		}
		if f == nil {
			return nil, fmt.Errorf("queue: segment %d in %s is not sealed, and a later one exists: %w", n, r.dir, ErrIncomplete)
		}
		files = append(files, *f)
		n = f.Last
	}
	return files, nil
}

// describeSealed returns nil for a file without a footer.
func describeSealed(s *segmentFile) *SealedFile {
	if s.footer == nil {
		return nil
	}
	f := &SealedFile{
		Name: filepath.Base(s.path), First: s.number, Last: max(s.number, s.header.rewrites.last), Size: s.info.Size,
		Footer: s.footer.digest().half(), Documents: int64(s.footer.documents), Deletes: int64(s.footer.entries - s.footer.documents),
	}
	if s.relocations != nil {
		f.First, f.Settled = s.header.rewrites.first, s.relocations.settled
	}
	return f
}

// FooterOf returns the digest of the footer that a sealed segment had when it was written,
// whether or not a rewrite has replaced it since. It is zero if that is unknown.
func (r *Reader) FooterOf(n SegmentID) (FooterDigest, error) {
	l, err := r.list()
	if err != nil {
		return FooterDigest{}, err
	}
	s, err := r.openWhole(&l, n)
	if err != nil {
		return FooterDigest{}, err
	}
	defer s.file.Close()
	switch {
	case s.relocations != nil:
		return s.digestOf(n).half(), nil
	case s.footer == nil:
		return FooterDigest{}, fmt.Errorf("queue: segment %d in %s is not sealed: %w", n, r.dir, ErrIncomplete)
	}
	return s.footer.digest().half(), nil
}
