package vfs

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"docstore/internal/invariants"
)

// Guard runs fn and converts a fault on mapped memory (SIGBUS because the file was
// truncated or the disk failed), which would end the process, to an error that matches
// ErrFault. It converts an access out of the bounds of a slice to an error that matches
// ErrBounds: the file's bytes changed while fn decoded them. Code must check bounds
// nevertheless, so invariant builds panic instead. On Linux they also panic at a fault
// on memory whose mapping was closed. All other panics pass through.
//
// Guard applies to fn's goroutine, can be nested, takes a few nanoseconds and does not
// allocate: wrap the copy, not the whole operation. fn is aborted at the fault, so it
// must not hold a lock.
func Guard(fn func()) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = faultOf(r)
		}
	}()
	fn()
	return nil
}

// faultOf converts a recovered memory fault or access out of bounds to an error, and
// panics again with anything else. A fault on mapped memory has an address; a nil
// pointer dereference has none and remains a panic.
func faultOf(recovered any) error {
	if fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		// If the disk failed, the mapping still exists.
		if invariants.Enabled && !isMapped(fault.Addr()) {
			panic(fmt.Sprintf("vfs: memory at %#x was used after its mapping was closed", fault.Addr()))
		}
		return &FaultError{Address: fault.Addr()}
	}
	if err, ok := recovered.(runtime.Error); ok && !invariants.Enabled && outOfBounds(err) {
		return &BoundsError{Reason: err.Error()}
	}
	panic(recovered)
}

// outOfBounds reports whether err is an error of an index or slice expression. The
// runtime does not export its type.
func outOfBounds(err runtime.Error) bool {
	message := err.Error()
	return strings.HasPrefix(message, "runtime error: index out of range") ||
		strings.HasPrefix(message, "runtime error: slice bounds out of range")
}
