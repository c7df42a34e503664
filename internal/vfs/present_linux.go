package vfs

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// presentStepBytes is the part of a mapping processed at a time. Pages evicted between
// mincore and mapping are read from the disk, so it is small.
const presentStepBytes = 2 << 20

// mapPresent maps the pages of a mapping that are in the page cache.
func mapPresent(mapping []byte) error {
	page := os.Getpagesize()
	inMemory := make([]byte, presentStepBytes/page)
	for len(mapping) > 0 {
		step := mapping[:min(len(mapping), presentStepBytes)]
		mapping = mapping[len(step):]
		pages := inMemory[:(len(step)+page-1)/page]
		if err := mincore(step, pages); err != nil {
			return os.NewSyscallError("mincore", err)
		}
		for begin := 0; begin < len(pages); {
			end := begin
			for end < len(pages) && pages[end]&1 != 0 {
				end++
			}
			if end == begin {
				begin++
				continue
			}
			err := unix.Madvise(step[begin*page:min(end*page, len(step))], unix.MADV_POPULATE_READ)
			if errors.Is(err, unix.EINVAL) { // kernel before 5.14
				return nil
			}
			if err != nil {
				return os.NewSyscallError("madvise", err)
			}
			begin = end
		}
	}
	return nil
}

// mincore reports, in the lowest bit per page, which pages are in memory.
func mincore(mapping, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mapping))),
		uintptr(len(mapping)), uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		return errno
	}
	return nil
}
