package e2e

import (
	"fmt"
	"syscall"
)

// mountSmall mounts a file system in memory of the given size, which needs root.
func mountSmall(dir string, bytes int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
}

func unmount(dir string) error { return syscall.Unmount(dir, 0) }
