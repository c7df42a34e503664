package table

import (
	"bufio"
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// spool holds the sections of a table that grow with its blocks and follow them in its
// file, until the blocks are complete. It writes them to a file, except for the last bytes
// of each, so the memory for a table that is being written does not depend on its size.
// The file is created when it is needed; most tables are too small.
type spool struct {
	fs     vfs.FS
	path   string
	charge *memoryCharge
	mu     struct {
		sync.Mutex
		file  vfs.File // nil: none
		bytes int64    // of the file
	}
}

const (
	// spoolPieceBytes is the size of a write to a spool, and the maximum of the bytes of a
	// section in memory.
	spoolPieceBytes = 256 << 10
	// firstPieceBytes is the initial capacity of a piece, sufficient for small tables.
	firstPieceBytes = 8 << 10
	// spoolReadBytes is the buffer size for reading a section.
	spoolReadBytes = 64 << 10
)

// spooled is a section in a spool. One goroutine at a time may use it.
type spooled struct {
	spool  *spool
	pieces []int64 // offsets in the file, of spoolPieceBytes each
	last   []byte  // the bytes after them
	crc    uint32  // of all bytes
}

// write appends to the section.
func (s *spooled) write(p []byte) error {
	s.crc = checksum.Update(s.crc, p)
	for len(p) > 0 {
		if len(s.last) == spoolPieceBytes {
			if err := s.store(); err != nil {
				return err
			}
		}
		if len(s.last) == cap(s.last) {
			s.grow()
		}
		n := copy(s.last[len(s.last):cap(s.last)], p)
		s.last, p = s.last[:len(s.last)+n], p[n:]
	}
	return nil
}

// grow enlarges the buffer fourfold, to at most a piece.
func (s *spooled) grow() {
	room := min(max(firstPieceBytes, 4*cap(s.last)), spoolPieceBytes)
	s.spool.charge.add(room - cap(s.last))
	s.last = append(make([]byte, 0, room), s.last...)
}

// store writes the buffered piece to the file.
func (s *spooled) store() error {
	f := s.spool
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.file == nil {
		file, err := f.fs.Create(f.path)
		if err != nil {
			return errors.Wrap(err, "lsm: create a spool")
		}
		f.mu.file = file
	}
	if _, err := f.mu.file.Write(s.last); err != nil {
		return errors.Wrapf(err, "lsm: write %s", f.path)
	}
	s.pieces = append(s.pieces, f.mu.bytes)
	f.mu.bytes += int64(len(s.last))
	s.last = s.last[:0]
	return nil
}

// read passes all bytes of the section to fn, which must read them, and verifies them: if
// the error is not nil, fn may have got damaged bytes.
func (s *spooled) read(fn func(r *bufio.Reader) error) error {
	readers := make([]io.Reader, 0, len(s.pieces)+1)
	for _, offset := range s.pieces {
		readers = append(readers, io.NewSectionReader(s.spool.mu.file, offset, spoolPieceBytes))
	}
	readers = append(readers, bytes.NewReader(s.last))
	var sum crcWriter
	r := bufio.NewReaderSize(io.TeeReader(io.MultiReader(readers...), &sum), spoolReadBytes)
	err := fn(r)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if err != nil || sum != crcWriter(s.crc) {
		return errors.WithStack(&CorruptionError{Path: s.spool.path, Reason: "differs from the bytes that were written"})
	}
	return nil
}

// copyTo passes all bytes of the section to emit.
func (s *spooled) copyTo(emit func([]byte) error) error {
	return s.read(func(r *bufio.Reader) error {
		for {
			p, err := r.Peek(spoolReadBytes)
			if err != nil && !errors.Is(err, io.EOF) {
				return errors.Wrap(err, "lsm: read a spool")
			}
			if len(p) == 0 {
				return nil
			}
			if err := emit(p); err != nil {
				return err
			}
			if _, err := r.Discard(len(p)); err != nil {
				return err
			}
		}
	})
}

// crcWriter computes the checksum of the bytes written.
type crcWriter uint32

func (c *crcWriter) Write(p []byte) (int, error) {
	*c = crcWriter(checksum.Update(uint32(*c), p))
	return len(p), nil
}

// remove removes the file. If that fails, the next Open removes it. It is idempotent.
func (f *spool) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.file != nil {
		_ = f.mu.file.Close()
		_ = f.fs.Remove(f.path)
		f.mu.file = nil
	}
}

// memoryCharge counts the memory of a table that is being written.
type memoryCharge struct {
	count func(bytes int64)
	bytes atomic.Int64
}

func (c *memoryCharge) add(bytes int) {
	c.bytes.Add(int64(bytes))
	c.count(int64(bytes))
}

// release ends the count. It is idempotent.
func (c *memoryCharge) release() { c.count(-c.bytes.Swap(0)) }
