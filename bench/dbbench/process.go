package main

import (
	"os"
	"sync/atomic"
	"time"

	"docstore/bench/internal/process"
)

// sampleEvery is the time between two samples of the memory or processor time of this process. On a slow
// machine one takes 0.2 ms, so that many more would make an idle process look busy.
const sampleEvery = 20 * time.Millisecond

// quietSince waits until the process has been idle for a while, which is when an engine has done its
// merges, and returns the time when that while began.
func quietSince(while time.Duration) time.Time {
	const share = 20 // less than a twentieth of a processor
	type sample struct {
		at  time.Time
		cpu time.Duration
	}
	var samples []sample // of the last while
	for {
		now := sample{time.Now(), process.OwnCPU()}
		samples = append(samples, now)
		for now.at.Sub(samples[0].at) >= while {
			if (now.cpu-samples[0].cpu)*share < now.at.Sub(samples[0].at) {
				return samples[0].at
			}
			samples = samples[1:]
		}
		time.Sleep(min(while, sampleEvery))
	}
}

// watchMemory records the greatest anonymous memory of this process.
func watchMemory() *atomic.Int64 {
	peak := new(atomic.Int64)
	go func() {
		for {
			peak.Store(max(peak.Load(), ownBytes("RssAnon")))
			time.Sleep(sampleEvery)
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
