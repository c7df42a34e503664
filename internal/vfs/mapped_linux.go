package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// isMapped reports whether the page at an address belongs to a mapping. msync with
// MS_ASYNC does nothing else.
func isMapped(address uintptr) bool {
	page := uintptr(os.Getpagesize())
	_, _, err := unix.Syscall(unix.SYS_MSYNC, address&^(page-1), page, unix.MS_ASYNC)
	return !errors.Is(err, unix.ENOMEM)
}
