package e2e

import (
	"fmt"
	"syscall"
)

// smallDiskInodes is enough for a queue and an index, and soon exhausted.
const smallDiskInodes = 4096

// mountSmall mounts a tmpfs of the given size, which requires root.
func mountSmall(dir string, bytes int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d", bytes, smallDiskInodes))
}

func unmount(dir string) error { return syscall.Unmount(dir, 0) }
