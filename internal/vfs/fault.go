package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
)

// OpKind is the kind of an operation of a Fault.
type OpKind uint8

// Operations of an FS, then those of a File and of an AppendMap.
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
	OpFree

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
	OpAppendClose
)

var opNames = [...]string{
	OpCreate: "create", OpOpen: "open", OpOpenAppend: "open append", OpCreateAppendMap: "create append map",
	OpRemove: "remove", OpRemoveAll: "remove all", OpRename: "rename", OpLink: "link", OpMkdirAll: "mkdir",
	OpList: "list", OpStat: "stat", OpSyncDir: "sync dir", OpLock: "lock", OpFree: "free",
	OpReadAt: "read", OpWrite: "write", OpWriteAt: "write at", OpSync: "sync", OpSyncData: "sync data", OpTruncate: "truncate",
	OpMap: "map", OpClose: "close",
	OpAppend: "append", OpAppendSync: "append sync", OpAppendClose: "append close",
}

func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("OpKind(%d)", k)
}

// Writes reports whether the operation changes the disk's contents or makes them
// durable: a crash can have different results only before such operations.
func (k OpKind) Writes() bool {
	switch k {
	case OpOpen, OpOpenAppend, OpList, OpStat, OpFree, OpReadAt, OpMap, OpClose:
		return false
	}
	return true
}

// Op is an operation that is about to be executed.
type Op struct {
	Kind  OpKind
	Name  string // the file or directory; the new name of a Rename or Link
	N     int64  // the number of the operation, from 1
	Bytes int    // bytes to be read, written or appended
}

// ShortError makes an operation fail with Err after that many bytes. The hook returns it for
// an OpWrite, OpWriteAt, OpAppend or OpReadAt.
type ShortError struct {
	Bytes int
	Err   error
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("%d bytes only: %v", e.Bytes, e.Err)
}

func (e *ShortError) Unwrap() error { return e.Err }

// LostPagesError simulates Linux after a failed write-back. The hook returns it for an
// OpSync, OpSyncData or OpAppendSync of a Mem's file. The error is reported once, as Err, and the dirty pages are marked clean. Later syncs, through any File, do not
// write them unless they are written to again. Reads return them, or the disk's
// contents if they were Evicted from memory. A power cut loses them.
type LostPagesError struct {
	Evicted bool
	Err     error
}

func (e *LostPagesError) Error() string {
	return fmt.Sprintf("pages were not written: %v", e.Err)
}

func (e *LostPagesError) Unwrap() error { return e.Err }

// Fault is an FS that calls a hook before each operation on it and on its files. If the
// hook returns an error, the operation returns that error and is not executed, with
// three exceptions: a File or lock is closed nevertheless, to avoid leaks; a read or
// write can be partial (ShortError); a sync can lose pages (LostPagesError). An
// AppendMap whose Close fails stays as after a killed process.
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
// With op.N >= k it is a crash: nothing is executed any more, and a CrashClone of the
// underlying Mem is the state for the next process.
//
// As with OS, a file can no longer be written or synced after a failed Sync.
type Fault struct {
	fs   FS
	hook func(Op) error
	ops  atomic.Int64
}

// NewFault wraps fs. The hook must be safe for concurrent use.
func NewFault(fs FS, hook func(Op) error) *Fault {
	return &Fault{fs: fs, hook: hook}
}

// Ops returns the number of operations so far.
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

// RemoveAll implements FS. As in the operating system, each name in the tree is an operation.
func (f *Fault) RemoveAll(name string) error { return f.removeAll(OpRemoveAll, name) }

func (f *Fault) removeAll(kind OpKind, name string) error {
	if err := f.before(kind, name, 0); err != nil {
		return err
	}
	info, err := f.fs.Stat(name)
	if err == nil && info.Dir {
		names, err := f.fs.List(name)
		if err != nil {
			return err
		}
		for _, below := range names {
			if err := f.removeAll(OpRemove, filepath.Join(name, below)); err != nil {
				return err
			}
		}
	}
	return f.fs.RemoveAll(name)
}

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

// Free implements FS.
func (f *Fault) Free(dir string) (Space, error) {
	if err := f.before(OpFree, dir, 0); err != nil {
		return Space{}, err
	}
	return f.fs.Free(dir)
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
