package wal

import (
	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// Spare is the file of an obsolete log, kept for reuse. Its pages are already
// allocated, in the page cache and mapped; a new file has to allocate, zero and map
// each page when it is first written.
//
// A Spare is not safe for concurrent use. Create or Close ends it.
type Spare struct {
	file  vfs.AppendMap
	owner []byte
}

var errMarked = errors.New("wal: a log that was synced cannot be used again")

// Reusable reports whether Retire can succeed: the log has no sync mark, which would
// claim lost bytes for the next log, and no operation has failed.
func (w *Writer) Reusable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reusable() == nil
}

// reusable requires mu.
func (w *Writer) reusable() error {
	if w.mu.err == nil && w.mu.synced > 0 {
		return errMarked
	}
	return w.mu.err
}

// Retire closes an obsolete log and keeps its file open in the Spare. When it returns
// nil, the log has no header and so no records, also after a power cut. After an error
// the Writer must still be closed; the log is unchanged or has no header.
//
// Concurrent readers must check the log's name: see the package comment.
func (w *Writer) Retire() (*Spare, error) {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.reusable(); err != nil {
		return nil, err
	}
	if err := w.file.Restart(headerBytes); err != nil {
		return nil, w.fail(errors.Wrapf(err, "wal: retire %s", w.name))
	}
	w.mu.closed, w.mu.err = true, ErrClosed
	return &Spare{w.file, w.owner}, nil
}

// Capacity returns the capacity in bytes of a log in this file.
func (s *Spare) Capacity() int64 { return s.file.Capacity() }

// Create begins a log of the given number in the file and writes its header. The caller
// must rename the file to name before the first Append; Create uses name only in
// errors. After an error the Spare must still be closed.
func (s *Spare) Create(name string, number uint64) (*Writer, error) {
	return begin(name, newHeader(number), s.owner, s.file)
}

// Close truncates the file to zero and closes it.
func (s *Spare) Close() error { return errors.Wrap(s.file.Close(), "wal: close a spare file") }
