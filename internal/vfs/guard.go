package vfs

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"docstore/internal/invariants"
)

// Guard runs fn and turns a fault on mapped memory inside it (SIGBUS because
// the file was cut or the disk failed) into an error that matches ErrFault.
// Without it such a fault ends the process. An access out of the bounds of a slice becomes
// an error that matches ErrBounds: bytes of the file changed while fn decoded them. Code
// has to check its bounds, so builds that check invariants panic instead. They also panic,
// on Linux, at a fault on memory whose mapping was closed. Every other panic passes through.
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

// faultOf makes an error of a recovered memory fault or access out of bounds and panics
// again with anything else. A fault on mapped memory has an address. A nil pointer has
// none and remains a programmer's error.
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
	if err, ok := recovered.(runtime.Error); ok && !invariants.Enabled && outOfBounds(err) {
		return &BoundsError{Reason: err.Error()}
	}
	panic(recovered)
}

// outOfBounds reports whether an error is that of an index or a slice expression. The
// runtime does not export its type.
func outOfBounds(err runtime.Error) bool {
	message := err.Error()
	return strings.HasPrefix(message, "runtime error: index out of range") ||
		strings.HasPrefix(message, "runtime error: slice bounds out of range")
}
