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

// A neighbour is a caller beside the callers that are measured.
type neighbour struct {
	method        string
	responseBytes int
}

// runBesideSlow is the price of slow handlers for calls to a quick one.
func runBesideSlow(s settings) error {
	return beside("slow", s, 63, false, neighbour{sleepMethod, kilobyte}, neighbour{faultMethod, kilobyte})
}

// runBesideBulk is the price of large answers for small ones.
func runBesideBulk(s settings) error {
	return beside("bulk", s, 64, false, neighbour{bulkMethod, maxResponseBytes})
}

// runApartFromBulk is the same on two connections: what the processors cost, without
// what waits in one queue.
func runApartFromBulk(s settings) error {
	return beside("apart", s, 64, true, neighbour{bulkMethod, maxResponseBytes})
}

// beside measures callers without and with their neighbours, in turns. The neighbours
// are on the same connection, or apart from it.
func beside(title string, s settings, callers int, apart bool, neighbours ...neighbour) (err error) {
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
	var without, with [][]uint32
	var served int64
	for range s.rounds {
		times, err := l.run(client)
		if err != nil {
			return err
		}
		slices.Sort(times)
		without = append(without, times)
		beside := meet(theirs, neighbours)
		times, err = l.run(client)
		n, neighboursErr := beside.leave()
		if err := errors.Join(err, neighboursErr); err != nil {
			return err
		}
		slices.Sort(times)
		with, served = append(with, times), served+n
	}
	var ratios []float64
	p99 := func(times []uint32) time.Duration { return percentile(times, 99) }
	for i := range with {
		ratios = append(ratios, float64(p99(with[i]))/float64(p99(without[i])))
	}
	slices.Sort(ratios)
	calls := func(times []uint32) float64 { return float64(len(times)) / s.duration.Seconds() }
	fmt.Printf("\n%-14s %8s %11s %9s   %s\n", title, "callers", "calls/s", "p99", "neighbours' calls")
	fmt.Printf("%-14s %8d %11.0f %9v\n", "without", callers, median(sorted(without, calls)), medianTime(without, 100*time.Nanosecond, p99))
	fmt.Printf("%-14s %8d %11.0f %9v   %d\n", "with", callers, median(sorted(with, calls)), medianTime(with, 100*time.Nanosecond, p99), served)
	fmt.Printf("%-14s %8s %11s %9.2f   (%.2f to %.2f)\n", "ratio", "", "", median(ratios), ratios[0], ratios[len(ratios)-1])
	return nil
}

// A party is neighbours who call until they are told to leave.
type party struct {
	stop    atomic.Bool
	callers sync.WaitGroup
	calls   atomic.Int64
	errs    []error
}

func meet(client boxcarClient, neighbours []neighbour) *party {
	p := &party{errs: make([]error, len(neighbours))}
	for i, n := range neighbours {
		p.callers.Go(func() { p.errs[i] = p.call(client, n) })
	}
	return p
}

func (p *party) call(client boxcarClient, n neighbour) error {
	request, dst := make([]byte, requestBytes), make([]byte, 0, n.responseBytes)
	putRequest(request, 0, n.responseBytes)
	for !p.stop.Load() {
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

// leave ends the party and returns how many calls it has made.
func (p *party) leave() (int64, error) {
	p.stop.Store(true)
	p.callers.Wait()
	return p.calls.Load(), errors.Join(p.errs...)
}
