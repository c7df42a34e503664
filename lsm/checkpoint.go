package lsm

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// Checkpoint makes dir a store of its own that holds everything written before
// the call: hard links to the tables where dir lies on the same file system,
// copies where it does not. What is known about filters goes along. It flushes first, and goes on beside writes. A dir
// that exists is ErrExists.
//
// The checkpoint is built in dir.tmp, synced, and renamed last: after a crash
// there is all of it or none, and what is left of dir.tmp the next attempt removes.
func (db *DB) Checkpoint(dir string) error {
	if db.options.ReadOnly {
		return db.readOnlyError()
	}
	fsys, dir := db.env.fs, filepath.Clean(dir)
	if _, err := fsys.Stat(dir); err == nil {
		return errors.Wrapf(ErrExists, "%s", dir)
	} else if !isNotExist(err) {
		return errors.Wrap(err, "lsm: checkpoint")
	}
	if err := db.Flush(); err != nil {
		return err
	}
	v, m, err := db.keepFiles()
	if err != nil {
		return err
	}
	defer db.releaseFiles(v)
	m.firstLog = m.nextNumber // it has no logs

	tmp := dir + tmpSuffix
	if err := fsys.RemoveAll(tmp); err != nil {
		return errors.Wrap(err, "lsm: checkpoint")
	}
	if err := vfs.MakeDir(fsys, tmp); err != nil {
		return errors.Wrap(err, "lsm: checkpoint")
	}
	if err = db.fillCheckpoint(tmp, v, m); err == nil {
		err = fsys.Rename(tmp, dir)
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: %w", ErrExists, err)
		}
	}
	if err != nil {
		return errors.CombineErrors(errors.Wrap(err, "lsm: checkpoint"), fsys.RemoveAll(tmp))
	}
	return errors.Wrap(fsys.SyncDir(filepath.Dir(dir)), "lsm: checkpoint")
}

// keepFiles returns a view of the present tables and a manifest of it,
// and sees to it that no file goes before releaseFiles.
func (db *DB) keepFiles() (*view, manifest, error) {
	// Under install no file is between its manifest and the leftovers.
	db.install.Lock()
	defer db.install.Unlock()
	present, err := db.acquire()
	if err != nil {
		return nil, manifest{}, err
	}
	v := present.tablesOnly()
	present.unref()
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.checkpoints++
	m := db.describe(v.tables, nil)
	return v, m, nil
}

func (db *DB) releaseFiles(v *view) {
	v.unref()
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.checkpoints--
	db.mu.changed.Broadcast()
}

func (db *DB) fillCheckpoint(dir string, v *view, m manifest) error {
	fsys := db.env.fs
	for _, t := range v.tables {
		if db.isClosing() {
			return ErrClosed
		}
		target := filepath.Join(dir, tableName(t.facts.number))
		err := fsys.Link(t.path, target)
		if errors.Is(err, vfs.ErrCrossDevice) {
			err = copyFile(fsys, target, t.path)
		}
		if err != nil {
			return err
		}
	}
	// What is known about filters goes along, so that the checkpoint opens warm.
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, filtersName), db.filters.Scores()); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	return m.write(fsys, filepath.Join(dir, manifestName))
}

func copyFile(fsys vfs.FS, target, source string) error {
	from, err := fsys.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := fsys.Create(target)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, info.Size))
	if err == nil {
		err = to.Sync()
	}
	return errors.CombineErrors(err, to.Close())
}
