package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is an FS in memory for tests. It tracks which bytes and names are durable;
// CrashClone returns possible states of the disk after a power cut. Relative names
// start at its root.
//
// A mapping is a copy made by Map. Only FlipBit changes it.
type Mem struct {
	mu struct {
		sync.RWMutex
		root      *memInode
		lastInode uint64
		capacity  int64 // bytes
		used      int64 // bytes: total size of all inodes with a name or an open file
		pending   []dirOp
		locks     map[*memInode]string // by lock file, the holder
	}
}

// defaultMemCapacity is the capacity before SetCapacity: a terabyte.
const defaultMemCapacity = 1 << 40

// NewMem returns an empty file system with the default capacity.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.capacity = defaultMemCapacity
	m.mu.locks = map[*memInode]string{}
	m.mu.root = m.newInode(true)
	return m
}

// memInode is a file or directory.
type memInode struct {
	id      uint64
	dir     bool
	modTime time.Time
	uses    int // names and open files

	// Of a directory: its current and its durable entries.
	entries, durableEntries map[string]*memInode

	// Of a file: the current and the durable bytes and size. A file may be longer than
	// its bytes; zeros follow. Below clean both are equal, except for lost pages, which
	// count as durable since their sync failed.
	data, durable     []byte
	size, durableSize int64
	clean             int64
	lost              map[int64]bool // by page number
	lastWrite         struct{ begin, end int64 }
	mappings          map[*memMapping]bool
}

// dirOp is a change of names that is not durable. It becomes durable atomically, as in
// a journal: a rename never loses its file.
type dirOp struct {
	inode    *memInode
	from, to dirEntry // from is empty for a new name, to for a removed one
}

type dirEntry struct {
	dir  *memInode
	name string
}

// apply applies the change to the entries returned by entriesOf.
func (op dirOp) apply(entriesOf func(dir *memInode) map[string]*memInode) {
	if op.from.dir != nil {
		if entries := entriesOf(op.from.dir); entries[op.from.name] == op.inode {
			delete(entries, op.from.name)
		}
	}
	if op.to.dir != nil {
		entriesOf(op.to.dir)[op.to.name] = op.inode
	}
}

// SetCapacity sets the maximum total size of all files. Writes beyond it return
// ErrNoSpace. It may be less than the current size.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = bytes
}

// The methods below that do not lock m.mu require it.

func (m *Mem) newInode(dir bool) *memInode {
	m.mu.lastInode++
	n := &memInode{id: m.mu.lastInode, dir: dir, modTime: time.Now()}
	if dir {
		n.entries, n.durableEntries = map[string]*memInode{}, map[string]*memInode{}
	}
	return n
}

// resize changes the size of a file, if there is enough capacity.
func (m *Mem) resize(n *memInode, size int64) error {
	if grow := size - n.size; grow > 0 && grow > m.mu.capacity-m.mu.used {
		return errNoSpace
	}
	m.mu.used += size - n.size
	n.size = size
	return nil
}

// release ends one use of an inode; after the last its bytes are free.
func (m *Mem) release(n *memInode) {
	n.uses--
	if n.uses == 0 {
		m.mu.used -= n.size
	}
}

// change changes names; a sync of a directory makes the change durable.
func (m *Mem) change(op dirOp) {
	if op.to.dir != nil {
		if replaced := op.to.dir.entries[op.to.name]; replaced != nil {
			m.release(replaced)
		}
	}
	op.apply(func(dir *memInode) map[string]*memInode {
		dir.modTime = time.Now()
		return dir.entries
	})
	switch {
	case op.from.dir == nil:
		op.inode.uses++
	case op.to.dir == nil:
		m.release(op.inode)
	}
	m.mu.pending = append(m.mu.pending, op)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// components splits a name into its components.
func components(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns the inode of a name.
func (m *Mem) find(op, name string) (*memInode, error) {
	n := m.mu.root
	for _, part := range components(name) {
		if !n.dir {
			return nil, pathError(op, name, syscall.ENOTDIR)
		}
		if n = n.entries[part]; n == nil {
			return nil, pathError(op, name, fs.ErrNotExist)
		}
	}
	return n, nil
}

// entry returns the directory entry of a name; its directory must exist.
func (m *Mem) entry(op, name string) (dirEntry, error) {
	parts := components(name)
	if len(parts) == 0 {
		return dirEntry{}, pathError(op, name, syscall.EBUSY) // the root
	}
	parent, err := m.find(op, filepath.Dir(filepath.Clean(name)))
	if err != nil {
		return dirEntry{}, pathError(op, name, errors.Unwrap(err))
	}
	if !parent.dir {
		return dirEntry{}, pathError(op, name, syscall.ENOTDIR)
	}
	return dirEntry{dir: parent, name: parts[len(parts)-1]}, nil
}

func (m *Mem) openInode(n *memInode, name string, writable bool) *memFile {
	n.uses++
	return &memFile{fs: m, inode: n, name: name, writable: writable}
}

// newEntry returns the directory entry of a name that must not exist.
func (m *Mem) newEntry(op, name string) (dirEntry, error) {
	at, err := m.entry(op, name)
	if err == nil && at.dir.entries[at.name] != nil {
		err = pathError(op, name, fs.ErrExist)
	}
	return at, err
}

func (m *Mem) createInode(op, name string) (*memInode, error) {
	at, err := m.newEntry(op, name)
	if err != nil {
		return nil, err
	}
	n := m.newInode(false)
	m.change(dirOp{inode: n, to: at})
	return n, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.createInode("create", name)
	if err != nil {
		return nil, err
	}
	return m.openInode(n, name, true), nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenAppend implements FS.
func (m *Mem) OpenAppend(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return m.openInode(n, name, writable), nil
}

// CreateAppendMap implements FS.
func (m *Mem) CreateAppendMap(name string, capacity int64) (AppendMap, error) {
	const op = "create append map"
	m.mu.Lock()
	defer m.mu.Unlock()
	if capacity <= 0 {
		return nil, pathError(op, name, fs.ErrInvalid)
	}
	at, err := m.newEntry(op, name)
	if err != nil {
		return nil, err
	}
	n := m.newInode(false)
	if err := m.resize(n, capacity); err != nil {
		return nil, pathError(op, name, err)
	}
	m.change(dirOp{inode: n, to: at})
	return &memAppendMap{file: m.openInode(n, name, true), capacity: capacity}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, err := m.entry("remove", name)
	if err != nil {
		return err
	}
	n := at.dir.entries[at.name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.change(dirOp{inode: n, from: at})
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, err := m.entry("remove all", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if at.dir.entries[at.name] != nil {
		m.removeTree(at)
	}
	return nil
}

func (m *Mem) removeTree(at dirEntry) {
	n := at.dir.entries[at.name]
	for _, name := range sortedNames(n.entries) {
		m.removeTree(dirEntry{dir: n, name: name})
	}
	m.change(dirOp{inode: n, from: at})
}

func sortedNames(entries map[string]*memInode) []string {
	return slices.Sorted(maps.Keys(entries))
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, err := m.entry("rename", oldName)
	if err != nil {
		return err
	}
	to, err := m.entry("rename", newName)
	if err != nil {
		return err
	}
	n := from.dir.entries[from.name]
	if n == nil {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	switch there := to.dir.entries[to.name]; {
	case there != nil && there.dir:
		return pathError("rename", newName, fs.ErrExist)
	case there == n: // two names of one file: both remain
		return nil
	case there != nil && n.dir:
		return pathError("rename", newName, syscall.ENOTDIR)
	case n.dir && within(n, to.dir):
		return pathError("rename", newName, syscall.EINVAL)
	}
	m.change(dirOp{inode: n, from: from, to: to})
	return nil
}

// within reports whether dir is tree or below it.
func within(tree, dir *memInode) bool {
	if tree == dir {
		return true
	}
	for _, n := range tree.entries {
		if within(n, dir) {
			return true
		}
	}
	return false
}

// Link implements FS.
func (m *Mem) Link(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("link", oldName)
	if err != nil {
		return err
	}
	to, err := m.newEntry("link", newName)
	if err != nil {
		return err
	}
	if n.dir {
		return pathError("link", oldName, syscall.EPERM)
	}
	m.change(dirOp{inode: n, to: to})
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.mu.root
	for _, part := range components(dir) {
		next := n.entries[part]
		if next == nil {
			next = m.newInode(true)
			m.change(dirOp{inode: next, to: dirEntry{dir: n, name: part}})
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.findDir("list", dir)
	if err != nil {
		return nil, err
	}
	return sortedNames(n.entries), nil
}

func (m *Mem) findDir(op, dir string) (*memInode, error) {
	n, err := m.find(op, dir)
	if err == nil && !n.dir {
		err = pathError(op, dir, syscall.ENOTDIR)
	}
	return n, err
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	return n.info(), nil
}

func (n *memInode) info() Info {
	return Info{Size: n.size, ModTime: n.modTime, Dir: n.dir, ID: FileID{Device: 1, Inode: n.id}}
}

// SyncDir implements FS. A rename between two directories is durable once either of
// them is synced.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findDir("sync", dir)
	if err != nil {
		return err
	}
	m.mu.pending = slices.DeleteFunc(m.mu.pending, func(op dirOp) bool {
		if op.from.dir != n && op.to.dir != n {
			return false
		}
		op.apply(func(dir *memInode) map[string]*memInode { return dir.durableEntries })
		return true
	})
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name, holder string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("lock", name)
	if errors.Is(err, fs.ErrNotExist) {
		n, err = m.createInode("lock", name)
	}
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, pathError("lock", name, syscall.EISDIR)
	}
	if there, locked := m.mu.locks[n]; locked {
		return nil, &LockedError{Name: name, Holder: there}
	}
	if err := m.truncate(n, 0); err != nil {
		return nil, pathError("lock", name, err)
	}
	if _, err := m.write(n, []byte(holder)); err != nil {
		return nil, pathError("lock", name, err)
	}
	m.mu.locks[n] = holder
	l := &memLock{file: m.openInode(n, name, true)}
	l.file.lock = true
	return l, nil
}

type memLock struct{ file *memFile }

// Close empties the lock file, like that of OS.
func (l *memLock) Close() error {
	m := l.file.fs
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.file.closed {
		return nil
	}
	err := m.truncate(l.file.inode, 0)
	l.file.close()
	return err
}

// Free implements FS.
func (m *Mem) Free(dir string) (Space, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, err := m.find("free", dir); err != nil {
		return Space{}, err
	}
	return Space{Bytes: max(0, m.mu.capacity-m.mu.used), Size: m.mu.capacity, Inodes: NoInodeLimit}, nil
}
