package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"docstore/boxcarrpc"
)

// A neighbour is a caller that interferes with the measured ones.
type neighbour struct {
	method        string
	responseBytes int
}

// interfere measures callers without and with neighbours, alternately. The neighbours use the same
// connection, or another one.
func (s *settings) interfere(title string, callers int, apart bool, neighbours ...neighbour) (err error) {
	boxcar := []string{"boxcar"}
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
	return s.keeper.Rounds(s.rounds, title, boxcar, func(int) (figures, error) { return l.withNeighbours(client, theirs, neighbours) })
}

// withNeighbours measures callers without and then with neighbours.
func (l load) withNeighbours(client, theirs boxcarClient, neighbours []neighbour) (figures, error) {
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
	return figures{
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
