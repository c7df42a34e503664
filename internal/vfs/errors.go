package vfs

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Errors about names match io/fs.ErrNotExist and io/fs.ErrExist; uses of closed objects
// match io/fs.ErrClosed. All implementations return the errors below.
var (
	// ErrFull: the data does not fit into an AppendMap.
	ErrFull = errors.New("vfs: append map is full")
	// ErrLocked: the lock is held; the error is a *LockedError.
	ErrLocked = errors.New("vfs: locked")
	// ErrFault: mapped memory could not be accessed; the error is a *FaultError.
	ErrFault = errors.New("vfs: memory fault")

	// ErrBounds: code that reads mapped memory accessed a slice out of bounds; the
	// error is a *BoundsError.
	ErrBounds = errors.New("vfs: access out of bounds")

	// ErrNoSpace: the disk is full.
	ErrNoSpace error = errNoSpace
	// ErrCrossDevice: the names of a Link or Rename are on different file systems.
	ErrCrossDevice error = errCrossDevice
)

// LockedError names the holder of a lock.
type LockedError struct {
	Name   string // the lock file
	Holder string // as given by the holder; empty if not yet written
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("%s is locked", e.Name)
	}
	return fmt.Sprintf("%s is locked by %s", e.Name, e.Holder)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// FaultError reports a failed access to mapped memory.
type FaultError struct {
	Address uintptr
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("memory fault at address %#x: the mapped file was truncated or its disk failed", e.Address)
}

// Is makes errors.Is(err, ErrFault) true.
func (e *FaultError) Is(target error) bool { return target == ErrFault }

// BoundsError reports an access out of bounds: mapped memory changed between the check
// and the access.
type BoundsError struct {
	Reason string
}

func (e *BoundsError) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrBounds) true.
func (e *BoundsError) Is(target error) bool { return target == ErrBounds }

// failure is the first write or sync error of a file. It is final: the kernel reports a
// page that it could not write once and then marks it clean, so a second fsync would
// wrongly succeed.
type failure struct {
	first atomic.Pointer[error]
}

// get returns the failure, nil if there is none.
func (f *failure) get() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}

// set records err as the failure unless there is one, and returns the failure.
func (f *failure) set(err error) error {
	f.first.CompareAndSwap(nil, &err)
	return f.get()
}
