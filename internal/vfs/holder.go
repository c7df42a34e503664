package vfs

import (
	"fmt"
	"os"
	"time"
)

// Holder describes this process for FS.Lock.
func Holder(since time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, since.UTC().Format(time.RFC3339))
}
