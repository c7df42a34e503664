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

// A result is one measurement.
type result struct {
	rate                       float64 // calls a second
	p50, p90, p99, p999        time.Duration
	syscalls                   float64 // read and write, both processes, per call
	clientAllocs, serverAllocs float64 // per call
	client, server             cpuTime // per call
	switches                   float64 // of threads, both processes, per call
	clientPeak, serverPeak     float64 // bytes in memory at most
	others                     float64 // share of the processors that others took
}

// cpu returns the processor time of both processes per call.
func (r result) cpu() time.Duration { return r.client.total() + r.server.total() }

// figures converts a result for the report.
func (r result) figures() map[string]float64 {
	return map[string]float64{
		"ops/s": r.rate, "p50 ns": float64(r.p50), "p90 ns": float64(r.p90), "p99 ns": float64(r.p99), "p999 ns": float64(r.p999),
		"syscalls": r.syscalls, "client allocs": r.clientAllocs, "server allocs": r.serverAllocs, "cpu ns": float64(r.cpu()),
		"client user ns": float64(r.client.user), "client system ns": float64(r.client.system),
		"server user ns": float64(r.server.user), "server system ns": float64(r.server.system), "switches": r.switches,
		"client peak bytes": r.clientPeak, "server peak bytes": r.serverPeak, "others": r.others,
	}
}

// resultOf converts stored figures.
func resultOf(f map[string]float64) result {
	return result{
		rate: f["ops/s"], p50: time.Duration(f["p50 ns"]), p90: time.Duration(f["p90 ns"]), p99: time.Duration(f["p99 ns"]),
		p999: time.Duration(f["p999 ns"]), syscalls: f["syscalls"], clientAllocs: f["client allocs"], serverAllocs: f["server allocs"],
		client:   cpuTime{time.Duration(f["client user ns"]), time.Duration(f["client system ns"])},
		server:   cpuTime{time.Duration(f["server user ns"]), time.Duration(f["server system ns"])},
		switches: f["switches"], clientPeak: f["client peak bytes"], serverPeak: f["server peak bytes"], others: f["others"],
	}
}

// A usage has the counters of both processes.
type usage struct {
	syscalls, switches         uint64
	clientMallocs, serverAlloc uint64
	client, server             cpuTime
	clientPeak, serverPeak     uint64
}

func (u usage) cpu() time.Duration { return u.client.total() + u.server.total() }

// measure warms up and measures one contestant.
func measure(c contestant, server *child, l load) (r result, err error) {
	client, err := c.connect(server.address, l.callers)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	warm := l
	warm.duration /= 10
	if _, err := warm.run(client); err != nil {
		return r, err
	}
	if err := errors.Join(resetPeak(os.Getpid()), resetPeak(server.pid())); err != nil {
		return r, err
	}
	before, err := used(server)
	if err != nil {
		return r, err
	}
	watch := machine.NewWatch(before.cpu())
	start := time.Now()
	times, err := l.run(client)
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
		p50:          percentile(times, 50),
		p90:          percentile(times, 90),
		p99:          percentile(times, 99),
		p999:         percentile(times, 99.9),
		syscalls:     float64(after.syscalls-before.syscalls) / n,
		client:       after.client.since(before.client, n),
		server:       after.server.since(before.server, n),
		switches:     float64(after.switches-before.switches) / n,
		clientAllocs: float64(after.clientMallocs-before.clientMallocs) / n,
		serverAllocs: float64(after.serverAlloc-before.serverAlloc) / n,
		clientPeak:   float64(after.clientPeak),
		serverPeak:   float64(after.serverPeak),
		others:       watch.Others(after.cpu()),
	}, nil
}

// percentile returns a percentile of sorted times in nanoseconds.
func percentile(times []uint32, percent float64) time.Duration {
	return time.Duration(times[int(float64(len(times)-1)*percent/100)])
}

// run makes calls with all callers for the duration and returns their times.
func (l load) run(client client) ([]uint32, error) {
	var (
		stop  atomic.Bool
		times = make([][]uint32, l.callers)
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
func (l load) callUntil(client client, caller int, stop *atomic.Bool) (times []uint32, err error) {
	times = make([]uint32, 0, 1<<12)
	request, dst := make([]byte, requestBytes), make([]byte, 0, 2*l.responseBytes)
	for len(times) == 0 || !stop.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		for i := 0; i < l.perContext && (len(times) == 0 || !stop.Load()) && err == nil; i++ {
			putRequest(request, uint64(len(times)), l.responseBytes)
			var response []byte
			start := time.Now()
			response, err = client.call(ctx, caller, request, dst)
			if err == nil {
				err = checkResponse(request, response)
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
	for _, process := range []struct {
		pid int
		cpu *cpuTime
	}{{os.Getpid(), &u.client}, {server.pid(), &u.server}} {
		syscalls, err := syscallsOf(process.pid)
		if err != nil {
			return u, err
		}
		switches, err := switchesOf(process.pid)
		if err != nil {
			return u, err
		}
		if *process.cpu, err = cpuOf(process.pid); err != nil {
			return u, err
		}
		u.syscalls += syscalls
		u.switches += switches
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	u.clientMallocs = stats.Mallocs
	if u.serverAlloc, err = server.mallocs(); err != nil {
		return u, err
	}
	if u.clientPeak, err = memoryOf(os.Getpid(), "VmHWM"); err != nil {
		return u, err
	}
	u.serverPeak, err = memoryOf(server.pid(), "VmHWM")
	return u, err
}
