package residency

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system tells which pages are in memory and read.
const Supported = true

// blockBytes is the unit of Rusage.Inblock.
const blockBytes = 512

// pagesRead returns the number of pages that this process has read from block devices, also
// in the background, or for which it has waited.
func pagesRead() uint64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return max(uint64(usage.Majflt), uint64(usage.Inblock)*blockBytes/uint64(os.Getpagesize()))
}

// isPresent reports whether the page of a mapped byte is in memory.
func isPresent(b *byte) (present, ok bool) {
	page := uintptr(unsafe.Pointer(b)) &^ pageMask
	var flags byte
	_, _, err := unix.Syscall(unix.SYS_MINCORE, page, 1, uintptr(unsafe.Pointer(&flags)))
	return flags&1 != 0, err == 0
}

// AllPresent reports whether all pages of a part of a mapping are in memory; false if the
// system does not tell. See Share for files of others.
func AllPresent(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	before := first & pageMask
	flags := make([]byte, (before+uintptr(len(b))+pageMask)/(pageMask+1))
	_, _, err := unix.Syscall(unix.SYS_MINCORE, first-before, before+uintptr(len(b)), uintptr(unsafe.Pointer(unsafe.SliceData(flags))))
	for _, f := range flags {
		if f&1 == 0 {
			return false
		}
	}
	return err == 0
}
