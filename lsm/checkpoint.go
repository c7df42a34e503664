package lsm

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// Checkpoint makes dir a store of its own that holds everything written before
// the call: hard links to the tables where dir lies on the same file system,
// copies where it does not. The statistics of the filters are copied too. It flushes
// first, and may run while the store is written. A dir that exists is ErrExists.
//
// A read-only DB makes a checkpoint of what it shows, also while another process writes:
// what it has read from logs becomes tables of the checkpoint, and the store itself is
// not changed.
//
// The checkpoint is built in dir.checkpoint-tmp, synced, and renamed last: after a
// crash there is all of it or none. The directory is locked while a checkpoint is built,
// and a second Checkpoint of the same dir is ErrLocked. What a crash has left in it the
// next attempt removes. One that holds other files is refused and left as it is.
func (db *DB) Checkpoint(dir string) error {
	fsys, dir := db.env.fs, filepath.Clean(dir)
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
	defer lock.Close() // after the rename: until then no other process may remove files
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

// checkpointSuffix is appended to the name of a checkpoint that is being built.
const checkpointSuffix = ".checkpoint-tmp"

// beginCheckpoint makes the directory in which a checkpoint is built, and locks it. It
// removes what an earlier attempt has left there, but no file of another kind.
func beginCheckpoint(fsys vfs.FS, dir string) (lock io.Closer, err error) {
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return nil, err
	}
	if _, err := checkpointLeftovers(fsys, dir); err != nil {
		return nil, err // without a LOCK in a directory that is not a checkpoint's
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

// checkpointLeftovers lists the files of an unfinished checkpoint, without its lock. A
// file of another kind is an error.
func checkpointLeftovers(fsys vfs.FS, dir string) (left []string, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		_, isTable := parseName(name, tableSuffix)
		switch name {
		case lockName:
			continue
		case manifestName, filtersName, manifestName + tmpSuffix, filtersName + tmpSuffix:
		default:
			if !isTable {
				return nil, errors.Newf("%s holds %s, which is not part of an unfinished checkpoint: move it away, or choose another directory for the checkpoint", dir, name)
			}
		}
		left = append(left, name)
	}
	return left, nil
}

// keepFiles returns a view of the present tables and a manifest of them, and sees to
// it that no file goes before releaseFiles. The view of a read-only DB has memtables,
// too, which nobody writes to; its files may go, since they are another's.
func (db *DB) keepFiles() (*view, manifest, error) {
	// Under install no file is between its manifest and the leftovers.
	db.install.Lock()
	defer db.install.Unlock()
	present, err := db.acquire()
	if err != nil {
		return nil, manifest{}, err
	}
	defer present.unref()
	var memtables []*memtable
	if db.options.ReadOnly {
		memtables = present.memtables
	}
	v := newView(memtables, present.tables)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.checkpoints++
	m := db.describe(v.tables, nil)
	return v, m, nil
}

func (db *DB) releaseFiles(v *view) {
	v.retire()
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.checkpoints--
	db.mu.changed.Broadcast()
}

// fillCheckpoint makes dir a store of what the view holds, whose tables the manifest
// lists.
func (db *DB) fillCheckpoint(dir string, v *view, m manifest) error {
	env := db.env
	env.dir = dir
	for _, t := range v.tables {
		if db.isClosing() {
			return ErrClosed
		}
		if err := db.copyTable(&env, t); err != nil {
			return err
		}
	}
	for _, memory := range slices.Backward(v.memtables) { // oldest first
		if memory.empty() {
			continue
		}
		facts, err := db.writeMemtable(&env, m.nextNumber, memory)
		if err != nil {
			return err
		}
		m.tables = slices.Insert(m.tables, 0, facts)
		m.lastSequence = facts.lastSequence
		m.nextNumber++
	}
	m.firstLog = m.nextNumber // it has no logs
	// What is known about filters goes along, so that the checkpoint opens warm.
	if err := vfs.WriteFileAtomic(env.fs, env.path(filtersName), db.filters.Scores()); err != nil {
		return err
	}
	if err := env.fs.SyncDir(dir); err != nil {
		return err
	}
	return m.write(env.fs, env.path(manifestName))
}

// copyTable puts a table into another directory. One that a writer has merged and
// removed meanwhile is still there for who has it mapped.
func (db *DB) copyTable(to *environment, t *table) error {
	target := to.path(tableName(t.facts.number))
	err := to.fs.Link(t.path, target)
	if errors.Is(err, vfs.ErrCrossDevice) {
		err = copyFile(to.fs, target, t.path)
	}
	if !db.options.ReadOnly {
		return err
	}
	if isNotExist(err) {
		err = writeDurably(to.fs, target, io.NewSectionReader(guardedReader{t.data}, 0, int64(len(t.data))))
	}
	if err != nil {
		return err
	}
	// By its name it was found, and names are the writer's: it has to be the same.
	r, err := openTableReader(to, t.facts, vfs.AdviseNormal)
	if err != nil {
		return err
	}
	r.close()
	return nil
}

// writeMemtable makes a table of a memtable that nobody writes to.
func (db *DB) writeMemtable(to *environment, number uint64, m *memtable) (tableFacts, error) {
	w, err := newTableWriter(to, number, false)
	if err != nil {
		return tableFacts{}, err
	}
	var facts tableFacts
	if err = db.fillTable(w, m.flushSource(), false, nil); err == nil {
		facts, err = w.finish(m.firstSequence.Load(), m.lastSequence)
	}
	if err != nil {
		w.abandon()
	}
	if errors.Is(err, errClosing) {
		err = ErrClosed
	}
	return facts, err
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
	return writeDurably(fsys, target, io.NewSectionReader(from, 0, info.Size))
}

// writeDurably makes a durable file.
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
