package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// makeCgroup makes a cgroup that bounds the memory of the processes in it, page cache
// included, of version 1 or 2, whichever there is. The caller removes it.
func makeCgroup(bytes int64) (dir string, err error) {
	var reasons []error
	for _, version := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(version.root, "dbbench-"+strconv.Itoa(os.Getpid()))
		if _, err := os.Stat(version.root); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			if err = os.WriteFile(filepath.Join(dir, version.limit), strconv.AppendInt(nil, bytes, 10), 0); err == nil {
				return dir, nil
			}
			_ = os.Remove(dir)
		}
		reasons = append(reasons, err)
	}
	return "", fmt.Errorf("no cgroup that bounds memory can be made here: %w", errors.Join(reasons...))
}

// joinCgroup moves this process into a cgroup.
func joinCgroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}
