package vfs

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// OpKind is the kind of an operation that a Fault can let fail.
type OpKind uint8

// The kinds of operations. Those of an FS come first, then those of a File and
// of an AppendMap.
const (
	OpCreate OpKind = iota
	OpOpen
	OpOpenAppend
	OpCreateAppendMap
	OpRemove
	OpRemoveAll
	OpRename
	OpLink
	OpMkdirAll
	OpList
	OpStat
	OpSyncDir
	OpLock
	OpFreeBytes

	OpReadAt
	OpWrite
	OpWriteAt
	OpSync
	OpSyncData
	OpTruncate
	OpMap
	OpClose

	OpAppend
	OpAppendSync
	OpAppendRestart
	OpAppendClose
)

var opNames = [...]string{
	OpCreate: "create", OpOpen: "open", OpOpenAppend: "open append", OpCreateAppendMap: "create append map",
	OpRemove: "remove", OpRemoveAll: "remove all", OpRename: "rename", OpLink: "link", OpMkdirAll: "mkdir",
	OpList: "list", OpStat: "stat", OpSyncDir: "sync dir", OpLock: "lock", OpFreeBytes: "free bytes",
	OpReadAt: "read", OpWrite: "write", OpWriteAt: "write at", OpSync: "sync", OpSyncData: "sync data", OpTruncate: "truncate",
	OpMap: "map", OpClose: "close",
	OpAppend: "append", OpAppendSync: "append sync", OpAppendRestart: "append restart", OpAppendClose: "append close",
}

func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("OpKind(%d)", k)
}

// Writes tells whether the operation changes what is on the disk or makes it
// durable: those are the moments at which a crash makes a difference.
func (k OpKind) Writes() bool {
	switch k {
	case OpOpen, OpOpenAppend, OpList, OpStat, OpFreeBytes, OpReadAt, OpMap, OpClose:
		return false
	}
	return true
}

// Op is an operation about to be done.
type Op struct {
	Kind  OpKind
	Name  string // the file or directory; the new name of a Rename or Link
	N     int64  // 1 for the first operation on the Fault, and so on
	Bytes int    // how many are to be read, written or appended
}

// ShortError as the error for an OpWrite, OpWriteAt, OpAppend or OpReadAt lets that many
// bytes be written or read before the operation fails with Err.
type ShortError struct {
	Bytes int
	Err   error
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("%d bytes only: %v", e.Bytes, e.Err)
}

func (e *ShortError) Unwrap() error { return e.Err }

// LostPagesError as the error for an OpSync, OpSyncData or OpAppendSync of a Mem's file
// is what Linux makes of a disk that does not take the pages of a file: it says so
// once, with Err, and calls them clean. From then on no sync writes them, through
// whichever File, but those that are written to again; reads show them, or what the
// disk has once they were Evicted from memory; and a loss of power takes them.
type LostPagesError struct {
	Evicted bool
	Err     error
}

func (e *LostPagesError) Error() string {
	return fmt.Sprintf("pages were not written: %v", e.Err)
}

func (e *LostPagesError) Unwrap() error { return e.Err }

// Fault is an FS that asks a hook before each operation on it and on its files.
// An error of the hook is returned in the place of the operation, which is not
// done. Three exceptions: a File or lock is closed in spite of it, so that nothing
// leaks; of a write or read a part may be done (ShortError); and a sync may lose what
// it was to make durable (LostPagesError). An AppendMap that is not closed stays as a
// killed process leaves it.
//
// A fault at operation k:
//
//	vfs.NewFault(fs, func(op vfs.Op) error {
//		if op.N == k {
//			return errInjected
//		}
//		return nil
//	})
//
// With op.N >= k it is a crash: nothing is done any more, and a CrashClone of
// the Mem below is what the next process finds.
//
// As with OS, after a failed Sync a file can no longer be written or synced.
type Fault struct {
	fs   FS
	hook func(Op) error
	ops  atomic.Int64
}

// NewFault wraps fs. The hook may be called by many goroutines at once.
func NewFault(fs FS, hook func(Op) error) *Fault {
	return &Fault{fs: fs, hook: hook}
}

// Ops tells how many operations there were so far.
func (f *Fault) Ops() int64 { return f.ops.Load() }

func (f *Fault) before(kind OpKind, name string, bytes int) error {
	return f.hook(Op{Kind: kind, Name: name, N: f.ops.Add(1), Bytes: bytes})
}

// Create implements FS.
func (f *Fault) Create(name string) (File, error) { return f.open(OpCreate, name, f.fs.Create) }

// Open implements FS.
func (f *Fault) Open(name string) (File, error) { return f.open(OpOpen, name, f.fs.Open) }

// OpenAppend implements FS.
func (f *Fault) OpenAppend(name string) (File, error) {
	return f.open(OpOpenAppend, name, f.fs.OpenAppend)
}

func (f *Fault) open(kind OpKind, name string, open func(string) (File, error)) (File, error) {
	if err := f.before(kind, name, 0); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{fault: f, name: name, file: file}, nil
}

// CreateAppendMap implements FS.
func (f *Fault) CreateAppendMap(name string, capacity int64) (AppendMap, error) {
	if err := f.before(OpCreateAppendMap, name, 0); err != nil {
		return nil, err
	}
	m, err := f.fs.CreateAppendMap(name, capacity)
	if err != nil {
		return nil, err
	}
	return &faultAppendMap{fault: f, name: name, appendMap: m}, nil
}

// Remove implements FS.
func (f *Fault) Remove(name string) error { return f.do(OpRemove, name, f.fs.Remove) }

// RemoveAll implements FS.
func (f *Fault) RemoveAll(name string) error { return f.do(OpRemoveAll, name, f.fs.RemoveAll) }

// MkdirAll implements FS.
func (f *Fault) MkdirAll(dir string) error { return f.do(OpMkdirAll, dir, f.fs.MkdirAll) }

// SyncDir implements FS.
func (f *Fault) SyncDir(dir string) error { return f.do(OpSyncDir, dir, f.fs.SyncDir) }

func (f *Fault) do(kind OpKind, name string, operation func(string) error) error {
	if err := f.before(kind, name, 0); err != nil {
		return err
	}
	return operation(name)
}

// Rename implements FS.
func (f *Fault) Rename(oldName, newName string) error {
	if err := f.before(OpRename, newName, 0); err != nil {
		return err
	}
	return f.fs.Rename(oldName, newName)
}

// Link implements FS.
func (f *Fault) Link(oldName, newName string) error {
	if err := f.before(OpLink, newName, 0); err != nil {
		return err
	}
	return f.fs.Link(oldName, newName)
}

// List implements FS.
func (f *Fault) List(dir string) ([]string, error) {
	if err := f.before(OpList, dir, 0); err != nil {
		return nil, err
	}
	return f.fs.List(dir)
}

// Stat implements FS.
func (f *Fault) Stat(name string) (Info, error) {
	if err := f.before(OpStat, name, 0); err != nil {
		return Info{}, err
	}
	return f.fs.Stat(name)
}

// FreeBytes implements FS.
func (f *Fault) FreeBytes(dir string) (int64, error) {
	if err := f.before(OpFreeBytes, dir, 0); err != nil {
		return 0, err
	}
	return f.fs.FreeBytes(dir)
}

// Lock implements FS.
func (f *Fault) Lock(name, holder string) (io.Closer, error) {
	if err := f.before(OpLock, name, 0); err != nil {
		return nil, err
	}
	lock, err := f.fs.Lock(name, holder)
	if err != nil {
		return nil, err
	}
	return &faultLock{fault: f, name: name, lock: lock}, nil
}

type faultLock struct {
	fault *Fault
	name  string
	lock  io.Closer
}

func (l *faultLock) Close() error {
	return errors.Join(l.fault.before(OpClose, l.name, 0), l.lock.Close())
}
