package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"docstore/bench/internal/machine"
)

// quietSince waits until the process has been idle for a while, which is when
// an engine has done its merges, and returns when that while began.
func quietSince(while time.Duration) (time.Time, error) {
	const share = 20 // less than a twentieth of a processor
	for {
		start := time.Now()
		before, err := cpuTime()
		if err != nil {
			return start, err
		}
		time.Sleep(while)
		after, err := cpuTime()
		if err != nil || (after-before)*share < while {
			return start, err
		}
	}
}

func cpuTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// memory watches how much anonymous memory the process has.
type memory struct{ peak atomic.Int64 }

func watchMemory() *memory {
	m := new(memory)
	go func() {
		for {
			m.peak.Store(max(m.peak.Load(), statusBytes("RssAnon:")))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return m
}

// statusBytes reads a line of /proc/self/status, 0 where there is none.
func statusBytes(field string) int64 { return procNumber("/proc/self/status", field) << 10 }

// ioBytes reads a line of /proc/self/io, 0 where there is none.
func ioBytes(field string) int64 { return procNumber("/proc/self/io", "\n"+field) }

// procNumber returns the number behind a field of a file of the kernel's.
func procNumber(name, field string) int64 {
	content, _ := os.ReadFile(name)
	_, rest, _ := strings.Cut(string(content), field)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n
}

// environment describes what the figures hold for.
func environment() string {
	s := time.Now().UTC().Format(time.RFC3339) + ", " + machine.Name() + ", commit " + machine.Commit()
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			for _, rival := range []string{"/pebble/", "/goleveldb", "/badger/", "/bbolt"} {
				if strings.Contains(d.Path, rival) {
					s += ", " + d.Path + " " + d.Version
				}
			}
		}
	}
	return s
}
