package wal

import (
	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// Spare is the file of a log that nobody needs any more, kept for one to come: its
// pages are there, in memory and in the process's map, where those of a new file have to
// be found, cleared and mapped, one by one as it is written, and freed with it.
//
// It is used by one goroutine at a time, and ends with Create or Close.
type Spare struct {
	file  vfs.AppendMap
	owner []byte
}

var errMarked = errors.New("wal: a log that was synced cannot be used again")

// Reusable tells whether Retire can be of use: no Sync has left a mark in the log, which
// would vouch there for bytes that are gone, and nothing has failed.
func (w *Writer) Reusable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reusable() == nil
}

// reusable is called under mu.
func (w *Writer) reusable() error {
	if w.mu.err == nil && w.mu.synced > 0 {
		return errMarked
	}
	return w.mu.err
}

// Retire ends a log that nobody needs any more and keeps its file. When it returns nil
// that is a log without a header, and so without records, also after a loss of power;
// the Writer is closed, and the file is open in the Spare. After an error the Writer has
// still to be closed, and the log is as it was or has no header.
//
// Who may be reading the log meanwhile must learn of it: see the package's comment.
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

// Capacity is that of a log made of the file, in bytes.
func (s *Spare) Capacity() int64 { return s.file.Capacity() }

// Create begins a log of the given number in the file. Its header is written when Create
// returns; the caller gives the file the name of the log, which errors will tell,
// before anything is appended. After an error the Spare has still to be closed.
func (s *Spare) Create(name string, number uint64) (*Writer, error) {
	return begin(name, newHeader(number), s.owner, s.file)
}

// Close releases the file and cuts it to nothing.
func (s *Spare) Close() error { return errors.Wrap(s.file.Close(), "wal: close a spare file") }
