package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
)

// A neighbour is a caller that interferes with the measured ones.
type neighbour struct {
	method        string
	responseBytes int
}

// runBesideSlow measures the effect of slow handlers on calls to a quick one.
func runBesideSlow(s settings) error {
	return interfere("slow", s, 63, false, neighbour{sleepMethod, kilobyte}, neighbour{faultMethod, kilobyte})
}

// runBesideBulk measures the effect of large responses on small ones.
func runBesideBulk(s settings) error {
	return interfere("bulk", s, 64, false, neighbour{bulkMethod, maxResponseBytes})
}

// runApartFromBulk is the same on two connections: contention for processors without head-of-line
// blocking.
func runApartFromBulk(s settings) error {
	return interfere("apart", s, 64, true, neighbour{bulkMethod, maxResponseBytes})
}

// interfere measures callers without and with neighbours, alternately. The neighbours use the same
// connection, or another one.
func interfere(title string, s settings, callers int, apart bool, neighbours ...neighbour) (err error) {
	boxcar, err := contestantsNamed("boxcar")
	if err != nil {
		return err
	}
	servers, stop, err := startChildren(boxcar)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	size := callers + len(neighbours)
	client, err := connectPool(servers[0].address, &boxcarrpc.PoolOptions{Size: size, LanesPerConn: size})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	theirs := client
	if apart {
		if theirs, err = connectPool(servers[0].address, &boxcarrpc.PoolOptions{Size: len(neighbours)}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, theirs.Close()) }()
	}
	l := s.load(callers, kilobyte)
	var rounds []map[string]float64
	for round := range s.rounds {
		kept, err := s.keeper.Measure("boxcar", title, round+1, func() (map[string]float64, error) {
			return l.withNeighbours(client, theirs, neighbours)
		})
		if err != nil {
			return err
		}
		rounds = append(rounds, kept)
	}
	figure := func(name string) func(map[string]float64) float64 {
		return func(f map[string]float64) float64 { return f[name] }
	}
	fmt.Printf("\n%-14s %8s %11s %9s   %s\n", title, "callers", "calls/s", "p99", "neighbours' calls")
	for _, which := range []string{"without", "with"} {
		fmt.Printf("%-14s %8d %11.0f %9v   %.0f\n", which, callers, median(sorted(rounds, figure(which+" ops/s"))),
			medianTime(rounds, 100*time.Nanosecond, timeNamed(which+" p99 ns")), median(sorted(rounds, figure(which+" neighbours"))))
	}
	ratios := sorted(rounds, figure("p99 ratio"))
	fmt.Printf("%-14s %8s %11s %9.2f   (%.2f to %.2f)\n", "ratio", "", "", median(ratios), ratios[0], ratios[len(ratios)-1])
	return nil
}

// withNeighbours measures callers without and then with neighbours.
func (l load) withNeighbours(client, theirs boxcarClient, neighbours []neighbour) (map[string]float64, error) {
	without, err := l.run(client)
	if err != nil {
		return nil, err
	}
	interfering := startNeighbours(theirs, neighbours)
	with, err := l.run(client)
	served, neighboursErr := interfering.stop()
	if err := errors.Join(err, neighboursErr); err != nil {
		return nil, err
	}
	slices.Sort(without)
	slices.Sort(with)
	calls := func(times []uint32) float64 { return float64(len(times)) / l.duration.Seconds() }
	p99 := func(times []uint32) float64 { return float64(percentile(times, 99)) }
	return map[string]float64{
		"without ops/s": calls(without), "without p99 ns": p99(without),
		"with ops/s": calls(with), "with p99 ns": p99(with), "with neighbours": float64(served),
		"p99 ratio": p99(with) / p99(without),
	}, nil
}

// neighbourCalls are the calls of neighbours until stop.
type neighbourCalls struct {
	stopped atomic.Bool
	callers sync.WaitGroup
	calls   atomic.Int64
	errs    []error
}

func startNeighbours(client boxcarClient, neighbours []neighbour) *neighbourCalls {
	p := &neighbourCalls{errs: make([]error, len(neighbours))}
	for i, n := range neighbours {
		p.callers.Go(func() { p.errs[i] = p.call(client, n) })
	}
	return p
}

func (p *neighbourCalls) call(client boxcarClient, n neighbour) error {
	request, dst := make([]byte, requestBytes), make([]byte, 0, n.responseBytes)
	putRequest(request, 0, n.responseBytes)
	for !p.stopped.Load() {
		response, err := client.Call(context.Background(), n.method, request, dst)
		if err == nil {
			err = checkResponse(request, response)
		}
		if err != nil {
			return err
		}
		p.calls.Add(1)
	}
	return nil
}

// stop ends the calls and returns their number.
func (p *neighbourCalls) stop() (int64, error) {
	p.stopped.Store(true)
	p.callers.Wait()
	return p.calls.Load(), errors.Join(p.errs...)
}
