package main

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"docstore/bench/internal/process"
)

// connections measures the memory of clients with one caller each, after a call.
func connections(c contestant, count int) (figures, error) {
	hereBefore, err := collectedHere()
	if err != nil {
		return nil, err
	}
	return withClients(c, count, func(server *child, clients []client, before int64) (figures, error) {
		if err := concurrently(count, func(i int) error { // some connect with the first call
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			return newCaller(clients[i], 0, kilobyte).call(ctx)
		}); err != nil {
			return nil, err
		}
		after, err := server.collected()
		hereAfter, hereErr := collectedHere()
		each := func(bytes int64) float64 { return float64(bytes) / float64(count) }
		return figures{"server bytes": each(after - before), "client bytes": each(hereAfter - hereBefore)}, errors.Join(err, hereErr)
	})
}

// idle measures the cost of clients that send only keep-alives.
func (s *settings) idle(c contestant) (figures, error) {
	return withClients(c, s.clients, func(server *child, _ []client, before int64) (figures, error) {
		time.Sleep(s.settle)
		servers := []*process.Process{server.process}
		start, cpu := time.Now(), process.CPUSeconds(servers)
		time.Sleep(s.quiet)
		share := (process.CPUSeconds(servers) - cpu) / time.Since(start).Seconds()
		after, err := server.collected()
		return figures{
			"before bytes": float64(before), "after bytes": float64(after),
			"bytes each": float64(after-before) / float64(s.clients), "cpu share": share,
		}, err
	})
}

// withClients connects clients with one caller each and calls measure with the server's memory before.
func withClients(c contestant, count int, measure func(server *child, clients []client, before int64) (figures, error)) (f figures, err error) {
	server, err := startChild(c.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	before, err := server.collected()
	if err != nil {
		return nil, err
	}
	clients := make([]client, count)
	defer func() {
		for _, client := range clients {
			if client != nil {
				err = errors.Join(err, client.Close())
			}
		}
	}()
	if err := concurrently(count, func(i int) error {
		client, err := c.dial(server.address, 1)
		if err == nil {
			clients[i] = client
		}
		return err
	}); err != nil {
		return nil, err
	}
	return measure(server, clients, before)
}

// concurrently calls a function for the clients, some at a time.
func concurrently(clients int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(32)
	for i := range clients {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// collectedHere returns the memory of this process after a garbage collection, in bytes.
func collectedHere() (int64, error) {
	collect()
	return process.Memory(os.Getpid(), "VmRSS")
}
