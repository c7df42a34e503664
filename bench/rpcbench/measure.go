package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

// callTimeout is the deadline of each call.
const callTimeout = 5 * time.Second

// A load is a closed loop: each caller sends its next request after the last response.
type load struct {
	callers       int
	responseBytes int
	duration      time.Duration // of a measurement, after a tenth of it to warm up
	perContext    int           // calls under one context with a deadline
}

// phase returns the name of the load in the results.
func (l load) phase(title string) string {
	return fmt.Sprintf("%s, %d callers, %d bytes", title, l.callers, l.responseBytes)
}

// measure warms up and measures one contestant.
func measure(c contestant, server *child, l load) (f figures, err error) {
	client, err := c.dial(server.address, l.callers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	warm := l
	warm.duration /= 10
	if _, err := warm.run(client); err != nil {
		return nil, err
	}
	before, err := used(server)
	if err != nil {
		return nil, err
	}
	watch := machine.NewWatch(time.Duration(before["cpu ns"]))
	start := time.Now()
	times, err := l.run(client)
	elapsed := time.Since(start)
	if err != nil {
		return nil, err
	}
	if f, err = used(server); err != nil {
		return nil, err
	}
	others := watch.Others(time.Duration(f["cpu ns"]))
	n := float64(len(times))
	for name := range f {
		f[name] = (f[name] - before[name]) / n
	}
	f["others"], f["ops/s"] = others, n/elapsed.Seconds()
	results.AddPercentiles(f, "", times)
	return f, nil
}

// run makes calls with all callers for the duration and returns their times.
func (l load) run(client client) ([]time.Duration, error) {
	var (
		stop  atomic.Bool
		times = make([][]time.Duration, l.callers)
		errs  = make([]error, l.callers)
		wg    sync.WaitGroup
	)
	timer := time.AfterFunc(l.duration, func() { stop.Store(true) })
	defer timer.Stop()
	for i := range l.callers {
		wg.Go(func() { times[i], errs[i] = l.callUntil(client, i, &stop) })
	}
	wg.Wait()
	return slices.Concat(times...), errors.Join(errs...)
}

// callUntil makes calls until stop, at least one.
func (l load) callUntil(client client, caller int, stop *atomic.Bool) (times []time.Duration, err error) {
	times = make([]time.Duration, 0, 1<<12)
	c := newCaller(client, caller, l.responseBytes)
	for len(times) == 0 || !stop.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		for i := 0; i < l.perContext && (len(times) == 0 || !stop.Load()) && err == nil; i++ {
			start := time.Now()
			err = c.call(ctx)
			times = append(times, time.Since(start))
		}
		cancel()
		if err != nil {
			return times, err
		}
	}
	return times, nil
}

// used returns the counters of both processes.
func used(server *child) (figures, error) {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	mallocs, err := server.mallocs()
	f := figures{"client allocs": float64(stats.Mallocs), "server allocs": float64(mallocs)}
	for _, pid := range []int{os.Getpid(), server.pid()} {
		cpu, cpuErr := process.CPU(pid)
		reads, readErr := process.Field(pid, "io", "syscr")
		writes, writeErr := process.Field(pid, "io", "syscw")
		switches, switchErr := switchesOf(pid)
		err = errors.Join(err, cpuErr, readErr, writeErr, switchErr)
		f["cpu ns"] += float64(cpu)
		f["syscalls"] += float64(reads + writes)
		f["switches"] += float64(switches)
	}
	return f, err
}

// switchesOf returns the context switches of all threads of a process.
func switchesOf(pid int) (n int64, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		status := "task/" + thread.Name() + "/status"
		voluntary, voluntaryErr := process.Field(pid, status, "voluntary_ctxt_switches")
		others, othersErr := process.Field(pid, status, "nonvoluntary_ctxt_switches")
		n, err = n+voluntary+others, errors.Join(err, voluntaryErr, othersErr)
	}
	return n, err
}
