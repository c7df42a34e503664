// Package cgroup limits the memory of processes, including the page cache, with control groups of
// version 1 or 2.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

var made atomic.Int64

// Make creates a group whose processes share a limit in bytes. The caller removes the directory after
// they have ended.
func Make(bytes int64) (dir string, err error) {
	var reasons []error
	for _, version := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(version.root, fmt.Sprintf("bench-%d-%d", os.Getpid(), made.Add(1)))
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
	return "", fmt.Errorf("cgroup: creating a group with a memory limit (requires root and a writable /sys/fs/cgroup): %w", errors.Join(reasons...))
}

// Join moves this process into a group.
func Join(dir string) error {
	return os.WriteFile(procs(dir), []byte("0"), 0)
}

// Enclose changes a command so that it runs in a group.
func Enclose(cmd *exec.Cmd, dir string) {
	const script = `echo $$ >"$0" && exec "$@"`
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, procs(dir), cmd.Path}, cmd.Args[1:]...)
}

func procs(dir string) string { return filepath.Join(dir, "cgroup.procs") }
