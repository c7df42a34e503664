package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback starts the writing of dirty pages and asks for no outcome: of the
// flags of sync_file_range(2) those that wait would take the report of a failed page
// from the fsync to come.
func startWriteback(f *os.File, offset, bytes int64) {
	_ = withDescriptor(f, "sync_file_range", func(fd int) error {
		return unix.SyncFileRange(fd, offset, bytes, unix.SYNC_FILE_RANGE_WRITE)
	})
}
