package queue

import (
	"errors"
	"io/fs"
	"path/filepath"

	"docstore/internal/vfs"
)

// uncommittedName is the name of the file that exists while blocks of a transaction may be in the
// directory that no Flush has committed.
const uncommittedName = "UNCOMMITTED"

// Begin begins a transaction, which the next Flush or Seal commits: after a crash, and after a
// Close before them, readers never see a part of its entries, and the next Writer discards them. If
// the entries need several segments, those that were sealed before are visible. Entries that were
// added before Begin and not flushed are part of it.
func (w *Writer) Begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	w.mu.transaction = true
	return nil
}

// beginUncommitted makes the file before the first block of a transaction is submitted. The mutex
// must be held.
func (w *Writer) beginUncommitted() {
	if w.mu.transaction && !w.mu.uncommitted {
		w.mu.uncommitted = true
		w.pipeline.submit(step{uncommitted: true})
	}
}

// commitTransaction ends a transaction before its last block is marked as committed. The mutex
// must be held.
func (w *Writer) commitTransaction() {
	if w.mu.uncommitted {
		w.pipeline.submit(step{committed: true})
	}
	w.mu.transaction, w.mu.uncommitted = false, false
}

// removeUncommitted removes the file, if it exists, durably: from then on the next Writer keeps
// the blocks.
func removeUncommitted(fsys vfs.FS, dir string) error {
	err := fsys.Remove(filepath.Join(dir, uncommittedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// isUncommitted reports whether blocks after the last commit mark are to be discarded.
func isUncommitted(fsys vfs.FS, dir string) (bool, error) {
	_, err := fsys.Stat(filepath.Join(dir, uncommittedName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
