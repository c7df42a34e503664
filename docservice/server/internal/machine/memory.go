// Package machine determines what a process may use of the machine or container that it runs
// on. Defaults follow from it.
package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/cockroachdb/errors"
)

// Memory is the memory that a process may use.
type Memory struct {
	Bytes int64
	// Limited: a control group limits it, and not the size of the machine.
	Limited bool
	// From is the file that states it.
	From string
}

// ReadMemory returns the memory that this process may use on Linux: that of the machine, or
// the least limit of its control groups (version 1 or 2). root is the file system, as
// os.DirFS("/").
func ReadMemory(root fs.FS) (Memory, error) {
	memory, err := total(root)
	if err != nil {
		return Memory{}, err
	}
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return memory, nil
	}
	if err != nil {
		return Memory{}, err
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // NUMBER:CONTROLLERS:PATH
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			memory = least(root, memory, "sys/fs/cgroup", fields[2], "memory.max")
		case strings.Contains(","+fields[1]+",", ",memory,"):
			memory = least(root, memory, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		}
	}
	return memory, nil
}

const meminfo = "proc/meminfo"

// total returns the memory of the machine.
func total(root fs.FS) (Memory, error) {
	text, err := fs.ReadFile(root, meminfo)
	if err != nil {
		return Memory{}, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); n == 1 && kib > 0 && kib <= math.MaxInt64>>10 {
			return Memory{Bytes: kib << 10, From: "/" + meminfo}, nil
		}
	}
	return Memory{}, errors.Newf("/%s has no line MemTotal", meminfo)
}

// least returns the least of memory and the limits of a group and its parents. In a
// container the group may be mounted as the root, so a directory that is missing is skipped.
func least(root fs.FS, memory Memory, mount, group, file string) Memory {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		name := path.Join(mount, group, file)
		if text, err := fs.ReadFile(root, name); err == nil {
			// Version 2 has the word "max", version 1 a huge number for no limit.
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && limit > 0 && limit < memory.Bytes {
				memory = Memory{Bytes: limit, Limited: true, From: "/" + name}
			}
		}
		if group == "/" {
			return memory
		}
	}
}
