//go:build !race

package boxcarrpc

import (
	"syscall"
	"unsafe"
)

// readNow and writeNow are read(2) and write(2) on a socket that does not wait. Of
// other calls the runtime has to know, because they may take long; then its monitor, a
// thread, looks every 20 us whether one does, and in a process that rests between two
// batches it begins anew with each. That was a sixth of the processor time of a call
// with 64 callers. What these two calls take is copying.

// b must not be empty.
func readNow(fd int, b []byte) (int, error) {
	return transfer(syscall.SYS_READ, fd, b)
}

// b must not be empty.
func writeNow(fd int, b []byte) (int, error) {
	return transfer(syscall.SYS_WRITE, fd, b)
}

func transfer(call uintptr, fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
