package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// callTimeout is the deadline that each call carries.
const callTimeout = 5 * time.Second

// A result is one measurement.
type result struct {
	rate                       float64 // calls a second
	p50, p99                   time.Duration
	syscalls                   float64       // read and write, both processes, per call
	clientAllocs, serverAllocs float64       // per call
	cpu                        time.Duration // of both processes, per call
}

// usage is what the two processes have used so far.
type usage struct {
	syscalls                   uint64
	clientMallocs, serverAlloc uint64
	cpu                        time.Duration
}

// measure runs one contestant for a while, warmed up.
func measure(c contestant, server *child, callers int, s settings) (r result, err error) {
	client, err := c.connect(server.address, callers)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, err := load(client, callers, s.duration/10, s.perContext); err != nil {
		return r, err
	}
	before, err := used(server)
	if err != nil {
		return r, err
	}
	start := time.Now()
	times, err := load(client, callers, s.duration, s.perContext)
	elapsed := time.Since(start)
	if err != nil {
		return r, err
	}
	after, err := used(server)
	if err != nil {
		return r, err
	}
	n := float64(len(times))
	slices.Sort(times)
	return result{
		rate:         n / elapsed.Seconds(),
		p50:          time.Duration(times[len(times)/2]),
		p99:          time.Duration(times[len(times)*99/100]),
		syscalls:     float64(after.syscalls-before.syscalls) / n,
		cpu:          time.Duration(float64(after.cpu-before.cpu) / n),
		clientAllocs: float64(after.clientMallocs-before.clientMallocs) / n,
		serverAllocs: float64(after.serverAlloc-before.serverAlloc) / n,
	}, nil
}

// load has every caller call until the time is over, and returns how long each
// call took.
func load(client client, callers int, duration time.Duration, perContext int) ([]uint32, error) {
	var (
		stop  atomic.Bool
		times = make([][]uint32, callers)
		errs  = make([]error, callers)
		wg    sync.WaitGroup
	)
	timer := time.AfterFunc(duration, func() { stop.Store(true) })
	defer timer.Stop()
	for i := range callers {
		wg.Go(func() { times[i], errs[i] = callUntil(client, i, &stop, perContext) })
	}
	wg.Wait()
	all := slices.Concat(times...)
	if len(all) == 0 {
		errs = append(errs, errors.New("no call was made"))
	}
	return all, errors.Join(errs...)
}

func callUntil(client client, caller int, stop *atomic.Bool, perContext int) (times []uint32, err error) {
	times = make([]uint32, 0, 1<<16)
	request, dst := make([]byte, requestBytes), make([]byte, 0, 2*responseBytes)
	for !stop.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		for i := 0; i < perContext && !stop.Load() && err == nil; i++ {
			binary.LittleEndian.PutUint64(request, uint64(len(times)))
			var response []byte
			start := time.Now()
			response, err = client.call(ctx, caller, request, dst)
			if err == nil && (len(response) != responseBytes || string(response[:requestBytes]) != string(request)) {
				err = fmt.Errorf("a wrong response of %d bytes", len(response))
			}
			times = append(times, uint32(time.Since(start)))
		}
		cancel()
		if err != nil {
			return times, err
		}
	}
	return times, nil
}

// used reads the counters of both processes.
func used(server *child) (u usage, err error) {
	for _, pid := range []int{os.Getpid(), server.process.Process.Pid} {
		n, err := syscallsOf(pid)
		if err != nil {
			return u, err
		}
		u.syscalls += n
		cpu, err := cpuOf(pid)
		if err != nil {
			return u, err
		}
		u.cpu += cpu
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	u.clientMallocs = stats.Mallocs
	u.serverAlloc, err = server.mallocs()
	return u, err
}

// cpuOf is the processor time that a process has used, to a hundredth of a second.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; user and system time are the
	// 12th and 13th field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
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
