package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// isMapped reports whether the page at an address is mapped. msync with MS_ASYNC has no
// other effect.
func isMapped(address uintptr) bool {
	page := uintptr(os.Getpagesize())
	_, _, err := unix.Syscall(unix.SYS_MSYNC, address&^(page-1), page, unix.MS_ASYNC)
	return !errors.Is(err, unix.ENOMEM)
}
