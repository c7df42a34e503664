package main

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"docstore/bench/internal/results"
	"docstore/boxcarrpc"
)

// A neighbour is a caller that interferes with the measured ones.
type neighbour struct {
	method        string
	responseBytes int
}

// interfere measures callers without and with neighbours, alternately. The neighbours use the same
// pool, or another one.
func (s *settings) interfere(title string, callers int, apart bool, neighbours ...neighbour) (err error) {
	boxcar := []string{"boxcar"}
	servers, stop, err := startChildren(boxcar)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	size := callers + len(neighbours)
	client, err := connectPool(servers[0].address, &boxcarrpc.PoolOptions{Size: size})
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
	var stopped atomic.Bool
	var interfering errgroup.Group
	for _, n := range neighbours {
		theirs.method = n.method
		c := newCaller(theirs, 0, n.responseBytes)
		interfering.Go(func() (err error) {
			for !stopped.Load() && err == nil {
				err = c.call(context.Background())
			}
			return err
		})
	}
	with, err := l.run(client)
	stopped.Store(true)
	if err := errors.Join(err, interfering.Wait()); err != nil {
		return nil, err
	}
	f := figures{"without ops/s": float64(len(without)) / l.duration.Seconds(), "with ops/s": float64(len(with)) / l.duration.Seconds()}
	results.AddPercentiles(f, "without ", without)
	results.AddPercentiles(f, "with ", with)
	f["p99 ratio"] = f["with p99 ns"] / f["without p99 ns"]
	return f, nil
}
