package main

import (
	"os"
	"sync/atomic"
	"time"

	"docstore/bench/internal/process"
)

// quietSince waits until the process has been idle for a while, which is when an engine has done its
// merges, and returns the time when that while began.
func quietSince(while time.Duration) time.Time {
	const share = 20 // less than a twentieth of a processor
	for {
		start, before := time.Now(), process.OwnCPU()
		time.Sleep(while)
		if (process.OwnCPU()-before)*share < while {
			return start
		}
	}
}

// watchMemory records the greatest anonymous memory of this process.
func watchMemory() *atomic.Int64 {
	peak := new(atomic.Int64)
	go func() {
		for {
			peak.Store(max(peak.Load(), ownBytes("RssAnon")))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return peak
}

// ownBytes returns a memory figure of this process.
func ownBytes(name string) int64 {
	n, _ := process.Memory(os.Getpid(), name) // 0 where the kernel has no such file
	return n
}

// ownIO returns a figure of /proc/self/io.
func ownIO(name string) int64 {
	n, _ := process.Field(os.Getpid(), "io", name) // 0 where the kernel has no such file
	return n
}
