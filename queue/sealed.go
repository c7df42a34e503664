package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// SealedFile describes a sealed segment or a rewrite. Its file never changes.
type SealedFile struct {
	Name        string
	First, Last SegmentID // the same in an original segment
	Size        int64     // bytes
	// Footer identifies the content: it covers the checksums of all blocks.
	Footer FooterDigest
	// Follows is the digest of the segment before First, and Ends that of Last: the next
	// file follows it. In an original segment Ends is Footer.
	Follows   FooterDigest
	Ends      FooterDigest
	Documents int64
	Deletes   int64
	// Settled is the Next of GoneError.Settled for all entries that a rewrite has left
	// out; zero in an original.
	Settled Address
}

// Sealed describes the files that hold the queue from its first segment to the last
// sealed one: for each segment the rewrite that replaces it, or else the original. They
// are in the order of their segments. An error that matches ErrIncomplete names a segment
// that is missing before a sealed one.
func (r *Reader) Sealed() (files []SealedFile, err error) {
	// Between listing and opening, a writer may rename the open segment, and Compact may
	// replace files: list again.
	for range sealedAttempts {
		if files, err = r.sealed(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return files, err
}

// sealedAttempts bounds the listings of Sealed and FooterOf.
const sealedAttempts = 10

func (r *Reader) sealed() ([]SealedFile, error) {
	if r.isClosed() {
		return nil, ErrClosed
	}
	l, err := segment.List(r.options.FS, r.dir)
	if err != nil {
		return nil, err
	}
	var files []SealedFile
	last := l.Last()
	for n := SegmentID(1); n <= last; n++ {
		s, err := l.OpenWhole(r.options.FS, r.dir, n)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, segment.ErrPartial) {
				err = fmt.Errorf("queue: segment %d in %s: %w (%w)", n, r.dir, ErrIncomplete, err)
			}
			return nil, err
		}
		f := describeSealed(s)
		s.Close()
		if strings.HasSuffix(s.Path, segment.OpenSuffix) {
			f = nil // its footer may not be durable
		}
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
func describeSealed(s *segment.File) *SealedFile {
	if s.Footer == nil {
		return nil
	}
	f := &SealedFile{
		Name: filepath.Base(s.Path), First: s.Number, Last: max(s.Number, s.Header.Rewrites.Last), Size: s.Info.Size,
		Footer: s.Footer.Digest().Half(), Follows: s.Header.Previous.Half(), Ends: s.Digest().Half(), Documents: int64(s.Footer.Documents), Deletes: int64(s.Footer.Entries - s.Footer.Documents),
	}
	if s.Relocations != nil {
		f.First, f.Settled = s.Header.Rewrites.First, s.Relocations.Settled
	}
	return f
}

// DescribeSealed describes one file of a queue. The error matches ErrIncomplete if the
// file has no footer, and ErrCorrupt if it is not a file of a queue.
func DescribeSealed(fsys vfs.FS, path string) (SealedFile, error) {
	name, ok := ParseFileName(filepath.Base(path))
	if !ok {
		return SealedFile{}, fmt.Errorf("queue: %s is not named like a file of a queue", path)
	}
	s, err := segment.Open(fsys, path, name.First)
	if err != nil {
		return SealedFile{}, err
	}
	defer s.Close()
	f := describeSealed(s)
	if f == nil {
		return SealedFile{}, fmt.Errorf("queue: %s is not sealed: %w", path, ErrIncomplete)
	}
	return *f, nil
}

// SealedHead returns the head of a directory with only these files, which Sealed returned.
func (r *Reader) SealedHead(files []SealedFile) (Head, error) {
	var h Head
	for _, f := range slices.Backward(files) {
		s, err := segment.Open(r.options.FS, filepath.Join(r.dir, f.Name), f.First)
		if err != nil {
			return Head{}, err
		}
		if h.Sealed == 0 {
			h.Queue, h.Highest, h.Sealed, h.Digest = s.Header.Queue, f.Last, f.Last, s.Digest()
		}
		end, found := positionAfter(s, s.Footer.LastBlock)
		s.Close()
		if found {
			h.End = end
			break
		}
	}
	return h, nil
}

// FooterOf returns the digest of the footer that a sealed segment had when it was written,
// whether or not a rewrite has replaced it since. It is zero if that is unknown.
func (r *Reader) FooterOf(n SegmentID) (digest FooterDigest, err error) {
	for range sealedAttempts {
		if digest, err = r.footerOf(n); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return digest, err
}

func (r *Reader) footerOf(n SegmentID) (FooterDigest, error) {
	if r.isClosed() {
		return FooterDigest{}, ErrClosed
	}
	l, err := segment.List(r.options.FS, r.dir)
	if err != nil {
		return FooterDigest{}, err
	}
	s, err := l.OpenWhole(r.options.FS, r.dir, n)
	if err != nil {
		return FooterDigest{}, err
	}
	defer s.Close()
	switch {
	case s.Relocations != nil:
		return s.DigestOf(n).Half(), nil
	case s.Footer == nil:
		return FooterDigest{}, fmt.Errorf("queue: segment %d in %s is not sealed: %w", n, r.dir, ErrIncomplete)
	}
	return s.Footer.Digest().Half(), nil
}
