package vfs

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Errors of names match io/fs.ErrNotExist and io/fs.ErrExist, uses of something
// closed match io/fs.ErrClosed. The rest is here, and errors.Is finds it
// whichever FS the error comes from.
var (
	// ErrFull: what was to be appended does not fit into an AppendMap.
	ErrFull = errors.New("vfs: append map is full")
	// ErrLocked: somebody else holds the lock; the error is a *LockedError.
	ErrLocked = errors.New("vfs: locked")
	// ErrFault: mapped memory could not be read or written; the error is a
	// *FaultError.
	ErrFault = errors.New("vfs: memory fault")

	// ErrBounds: code that reads mapped memory accessed a slice out of its bounds; the
	// error is a *BoundsError.
	ErrBounds = errors.New("vfs: access out of bounds")

	// ErrNoSpace: the disk is full.
	ErrNoSpace error = errNoSpace
	// ErrCrossDevice: the two names of a Link or Rename lie on different file
	// systems.
	ErrCrossDevice error = errCrossDevice
)

// LockedError says who holds a lock.
type LockedError struct {
	Name   string // the lock file
	Holder string // as the holder described itself; empty if it had no time to
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("%s is locked", e.Name)
	}
	return fmt.Sprintf("%s is locked by %s", e.Name, e.Holder)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// FaultError says where an access to memory failed.
type FaultError struct {
	Address uintptr
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("memory fault at address %#x: the mapped file was cut or its disk failed", e.Address)
}

// Is makes errors.Is(err, ErrFault) true.
func (e *FaultError) Is(target error) bool { return target == ErrFault }

// BoundsError says how an access was out of bounds: mapped memory changed between the
// check and the access.
type BoundsError struct {
	Reason string
}

func (e *BoundsError) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrBounds) true.
func (e *BoundsError) Is(target error) bool { return target == ErrBounds }

// failure is the first error that made a file unfit for writing. A kernel
// reports a page it could not write once and then calls the page clean, so that
// a second fsync would lie: the first failure is final.
type failure struct {
	first atomic.Pointer[error]
}

// get returns the failure, nil if there was none.
func (f *failure) get() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}

// set makes err the failure unless there is one already, and returns the failure.
func (f *failure) set(err error) error {
	f.first.CompareAndSwap(nil, &err)
	return f.get()
}
