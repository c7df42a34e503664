package vfs

import (
	"fmt"
	"os"
	"time"
)

// Holder names this process to whom finds a file locked by it: the holder of FS.Lock.
func Holder(since time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, since.UTC().Format(time.RFC3339))
}
