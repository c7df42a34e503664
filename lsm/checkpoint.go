package lsm

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// Checkpoint creates in dir a separate store with everything written before the call.
// Tables are hard links if dir is on the same file system, copies otherwise. Filter
// statistics are copied, too. Checkpoint flushes first. The store can be written
// meanwhile. If dir exists, the error is ErrExists.
//
// A read-only DB creates a checkpoint of the state that it shows, also while another
// process writes: writes from logs become tables of the checkpoint, and the store
// itself is not changed.
//
// The checkpoint is built in dir.checkpoint-tmp, synced, and renamed last: a crash
// leaves either no checkpoint or a complete one. The directory is locked meanwhile; a
// concurrent Checkpoint of the same dir returns ErrLocked. The next attempt removes the
// files that a crash left there. If the directory has files of other kinds, Checkpoint
// returns an error and does not change it.
func (db *DB) Checkpoint(dir string) error {
	fsys, dir := db.env.FS, filepath.Clean(dir)
	if _, err := fsys.Stat(dir); err == nil {
		return errors.Wrapf(ErrExists, "%s", dir)
	} else if !isNotExist(err) {
		return errors.Wrap(err, "lsm: checkpoint")
	}
	if !db.options.ReadOnly {
		if err := db.Flush(); err != nil {
			return err
		}
	}
	v, m, err := db.keepFiles()
	if err != nil {
		return err
	}
	defer db.releaseFiles(v)

	tmp := dir + checkpointSuffix
	lock, err := beginCheckpoint(fsys, tmp)
	if err != nil {
		return errors.Wrap(err, "lsm: checkpoint")
	}
	defer lock.Close() // after the rename: until then it protects the files
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

// checkpointSuffix is appended to the name of a checkpoint in progress.
const checkpointSuffix = ".checkpoint-tmp"

// beginCheckpoint creates and locks the directory of a checkpoint in progress. It
// removes the files of an earlier attempt, but no others.
func beginCheckpoint(fsys vfs.FS, dir string) (lock io.Closer, err error) {
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return nil, err
	}
	if _, err := checkpointLeftovers(fsys, dir); err != nil {
		return nil, err // before creating LOCK in a foreign directory
	}
	if lock, err = lockDir(fsys, dir); err != nil {
		return nil, err
	}
	left, err := checkpointLeftovers(fsys, dir)
	for _, name := range left {
		if err == nil {
			err = fsys.Remove(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return nil, errors.CombineErrors(err, lock.Close())
	}
	return lock, nil
}

// checkpointLeftovers lists the files of an unfinished checkpoint except its lock. A
// file of another kind is an error.
func checkpointLeftovers(fsys vfs.FS, dir string) (left []string, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		suffix, _ := parseName(name)
		switch name {
		case lockName:
			continue
		case manifestName, filtersName, manifestName + tmpSuffix, filtersName + tmpSuffix:
		default:
			if suffix != tableSuffix {
				return nil, errors.Newf("%s holds %s, which is not part of an unfinished checkpoint: move it away, or choose another directory for the checkpoint", dir, name)
			}
		}
		left = append(left, name)
	}
	return left, nil
}

// keepFiles returns a view of the current tables and a manifest of them, and prevents
// the removal of files until releaseFiles. The view of a read-only DB includes its
// memtables, which are immutable; it cannot prevent the writer from removing files.
func (db *DB) keepFiles() (*view, manifest, error) {
	// Under install, no file is between its manifest and db.obsolete.
	db.install.Lock()
	defer db.install.Unlock()
	present, err := db.acquire()
	if err != nil {
		return nil, manifest{}, err
	}
	defer present.unref()
	var memtables []*memtable.Memtable
	if db.options.ReadOnly {
		memtables = present.memtables
	}
	v := newView(memtables, present.tables)
	db.obsolete.hold()
	db.schedule.mu.Lock()
	defer db.schedule.mu.Unlock()
	m := db.describe(v.tables, nil)
	return v, m, nil
}

func (db *DB) releaseFiles(v *view) {
	v.retire()
	db.obsolete.release()
	db.schedule.wake()
}

// fillCheckpoint makes dir a store with the contents of the view; m lists its tables.
func (db *DB) fillCheckpoint(dir string, v *view, m manifest) error {
	env := db.env
	env.dir = dir
	for _, t := range v.tables {
		if db.schedule.isClosing() {
			return ErrClosed
		}
		if err := db.copyTable(&env, t); err != nil {
			return err
		}
	}
	for _, memory := range slices.Backward(v.memtables) { // oldest first
		if memory.Empty() {
			continue
		}
		facts, err := db.writeMemtable(&env, m.nextNumber, memory)
		if err != nil {
			return err
		}
		m.tables = slices.Insert(m.tables, 0, facts)
		m.lastSequence = facts.LastSequence
		m.nextNumber++
	}
	m.firstLog = m.nextNumber // it has no logs
	// With the filter statistics the checkpoint opens warm.
	if err := vfs.WriteFileAtomic(env.FS, env.path(filtersName), db.filters.Scores()); err != nil {
		return err
	}
	if err := env.FS.SyncDir(dir); err != nil {
		return err
	}
	return m.write(env.FS, env.path(manifestName))
}

// copyTable copies a table to another directory. If the writer has removed the file,
// the contents are still mapped.
func (db *DB) copyTable(to *environment, t *table.Reader) error {
	target := to.path(tableName(t.Facts.Number))
	err := to.FS.Link(t.Path, target)
	if errors.Is(err, vfs.ErrCrossDevice) || db.options.ReadOnly && isNotExist(err) {
		err = writeDurably(to.FS, target, t.Content())
	}
	if err != nil || !db.options.ReadOnly {
		return err
	}
	// The file was opened by name, and the writer may have replaced it: verify that it
	// is the same table.
	source, err := to.openSource(t.Facts)
	if err != nil {
		return err
	}
	source.Close()
	return nil
}

// writeMemtable writes a sealed memtable to a table.
func (db *DB) writeMemtable(to *environment, number uint64, m *memtable.Memtable) (table.Facts, error) {
	w, err := to.createTable(number, false)
	if err != nil {
		return table.Facts{}, err
	}
	facts, err := db.writeTable(w, m.Source(), m.First(), m.Last(), false, nil)
	if errors.Is(err, errClosing) {
		err = ErrClosed
	}
	return facts, err
}

// writeDurably creates a file and syncs it.
func writeDurably(fsys vfs.FS, target string, content io.Reader) error {
	to, err := fsys.Create(target)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, content)
	if err == nil {
		err = to.Sync()
	}
	return errors.CombineErrors(err, to.Close())
}
