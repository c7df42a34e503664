package residency

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRanges is the maximum number of ranges of a system call (UIO_MAXIOV).
const maxRanges = 1024

// Ranges are parts of mapped files that are accessed soon. The zero Ranges is empty.
type Ranges struct{ vectors []vector }

// vector is a struct iovec of the kernel. The address of a page may lie before the part of
// a mapping that begins in it, so that it is not a pointer into the mapping for Go.
type vector struct{ base, length uintptr }

var pageMask = uintptr(os.Getpagesize() - 1)

// Add adds a part of a mapping, which must stay mapped until Read has returned. It does not
// access the memory.
func (r *Ranges) Add(b []byte) {
	if len(b) == 0 {
		return
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	before := first & pageMask
	r.vectors = append(r.vectors, vector{first - before, uintptr(len(b)) + before})
}

// Read asks the kernel to read the ranges in the background, and empties r.
func (r *Ranges) Read() {
	for rest := r.vectors; len(rest) > 0; {
		some := rest[:min(len(rest), maxRanges)]
		rest = rest[len(some):]
		if !adviseAll(some) {
			for _, v := range some {
				_, _, _ = unix.Syscall(unix.SYS_MADVISE, v.base, v.length, unix.MADV_WILLNEED) // only a hint
			}
		}
	}
	r.vectors = r.vectors[:0]
}

// self returns a descriptor of this process, -1 if there is none.
var self = sync.OnceValue(func() int {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return -1
	}
	return fd
})

// withoutVectors is set if process_madvise is not available: before Linux 5.12, and where a
// sandbox forbids it.
var withoutVectors atomic.Bool

// adviseAll advises on all ranges in one system call. It returns false if that is not
// available.
func adviseAll(ranges []vector) bool {
	if withoutVectors.Load() {
		return false
	}
	if self() >= 0 {
		_, _, err := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(self()),
			uintptr(unsafe.Pointer(unsafe.SliceData(ranges))), uintptr(len(ranges)), unix.MADV_WILLNEED, 0, 0)
		switch {
		case err == 0:
			return true
		case !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL):
			return true // of a range: the access reports it
		}
	}
	withoutVectors.Store(true)
	return false
}
