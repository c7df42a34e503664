package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A cpuTime is processor time: a process' own, and the kernel's for it.
type cpuTime struct{ user, system time.Duration }

func (t cpuTime) total() time.Duration { return t.user + t.system }

// since is the time per call since an earlier moment, n calls ago.
func (t cpuTime) since(before cpuTime, n float64) cpuTime {
	return cpuTime{
		time.Duration(float64(t.user-before.user) / n),
		time.Duration(float64(t.system-before.system) / n),
	}
}

// cpuOf is what a process has used, to a hundredth of a second.
func cpuOf(pid int) (t cpuTime, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return t, err
	}
	// The name, in parentheses, may hold anything; user and system time are the
	// 12th and 13th field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return t, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond
	return cpuTime{time.Duration(user) * tick, time.Duration(system) * tick}, err
}

// switchesOf is how often the threads of a process have gone to sleep, or had to let
// others run.
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

// syscallsOf is how often a process has called read, write and their kin.
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

// memoryOf is a line of a process' status that tells of its memory, in bytes.
func memoryOf(pid int, name string) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseUint(strings.Fields(value)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s of process %d", name, pid)
}

// resetPeak has VmHWM of a process begin anew.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
