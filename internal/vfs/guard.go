package vfs

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"docstore/internal/invariants"
)

// Guard runs fn and turns a fault on mapped memory inside it (SIGBUS because
// the file was cut or the disk failed) into an error that matches ErrFault.
// Without it such a fault ends the process. Every other panic passes through. In builds
// that check invariants so does a fault on memory whose mapping was closed, on Linux.
//
// It holds for what fn does in its own goroutine, may be nested, costs a few
// nanoseconds and allocates nothing: wrap the copy, not the whole operation. fn
// is left in the middle, so it must not hold a lock.
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

// faultOf makes an error of a recovered memory fault and panics again with
// anything else. Only faults at an address of their own carry one: an ordinary
// nil pointer does not, and remains the programmer's error that it is.
func faultOf(recovered any) error {
	if fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		// A failing disk leaves the mapping in place.
		if invariants.Enabled && !isMapped(fault.Addr()) {
			panic(fmt.Sprintf("vfs: memory at %#x was used after its mapping was closed", fault.Addr()))
		}
		return &FaultError{Address: fault.Addr()}
	}
	panic(recovered)
}
