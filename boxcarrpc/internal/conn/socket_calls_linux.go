//go:build !race

package conn

import (
	"syscall"
	"unsafe"
)

const (
	readCall  = syscall.SYS_READ
	writeCall = syscall.SYS_WRITE
)

// transfer is read(2) or write(2) on a non-blocking socket; b is not empty. It bypasses the
// Go scheduler: for an ordinary system call its monitor thread wakes every 20 us to check
// whether the call blocks, and in a process that is idle between batches it starts again
// with each batch. That was a sixth of the processor time of a call with 64 callers.
func transfer(call uintptr, fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
