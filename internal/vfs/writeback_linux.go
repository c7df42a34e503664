package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback starts writing dirty pages and ignores errors. The flags of
// sync_file_range(2) that wait would consume the error of a failed page, which the
// later fsync must report.
func startWriteback(f *os.File, offset, bytes int64) {
	_ = withDescriptor(f, "sync_file_range", func(fd int) error {
		return unix.SyncFileRange(fd, offset, bytes, unix.SYNC_FILE_RANGE_WRITE)
	})
}
