package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"docstore/bench/internal/process"
)

// A cpuTime is the user and kernel time of a process.
type cpuTime struct{ user, system time.Duration }

func (t cpuTime) total() time.Duration { return t.user + t.system }

// since returns the time per call since an earlier reading, n calls ago.
func (t cpuTime) since(before cpuTime, n float64) cpuTime {
	return cpuTime{
		time.Duration(float64(t.user-before.user) / n),
		time.Duration(float64(t.system-before.system) / n),
	}
}

// cpuOf returns the processor time of a process, to a hundredth of a second.
func cpuOf(pid int) (t cpuTime, err error) {
	t.user, t.system, err = process.CPU(pid)
	return t, err
}

// switchesOf returns the context switches of all threads of a process.
func switchesOf(pid int) (n uint64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	for _, name := range threads {
		status, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(status)) {
			if key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); strings.HasSuffix(key, "voluntary_ctxt_switches") {
				count, err := strconv.ParseUint(value, 10, 64)
				if err != nil {
					return 0, err
				}
				n += count
			}
		}
	}
	return n, nil
}

// syscallsOf returns the read and write system calls of a process.
func syscallsOf(pid int) (n uint64, err error) {
	counters, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(counters)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "syscr" || name == "syscw" {
			count, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return 0, err
			}
			n += count
		}
	}
	return n, nil
}

// memoryOf returns a memory figure of a process, in bytes.
func memoryOf(pid int, name string) (uint64, error) {
	n, err := process.Memory(pid, name)
	return uint64(n), err
}

// resetPeak resets VmHWM of a process.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
