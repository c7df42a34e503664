package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sync/errgroup"

	"docstore/bench/internal/process"
)

// connections measures clients with one caller each.
func connections(c contestant, count int) (f figures, err error) {
	server, err := startChild(c.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	before, err := server.collected()
	if err != nil {
		return nil, err
	}
	hereBefore, err := collectedHere()
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
	if err := connectAll(c, server.address, clients); err != nil {
		return nil, err
	}
	after, err := server.collected()
	if err != nil {
		return nil, err
	}
	hereAfter, err := collectedHere()
	if err != nil {
		return nil, err
	}
	each := func(before, after int64) float64 { return (float64(after) - float64(before)) / float64(count) }
	return figures{"server bytes": each(before, after), "client bytes": each(hereBefore, hereAfter)}, nil
}

// connectAll connects clients and makes a call on each, because some connect lazily.
func connectAll(c contestant, address string, clients []client) error {
	var group errgroup.Group
	group.SetLimit(dialling)
	for i := range clients {
		group.Go(func() (err error) {
			if clients[i], err = c.connect(address, 1); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			request, dst := make([]byte, requestBytes), make([]byte, 0, 2*kilobyte)
			putRequest(request, uint64(i), kilobyte)
			response, err := clients[i].call(ctx, 0, request, dst)
			if err != nil {
				return err
			}
			return checkResponse(request, response)
		})
	}
	return group.Wait()
}

// collectedHere returns the memory of this process after a garbage collection, in bytes.
func collectedHere() (int64, error) {
	collect()
	return process.Memory(os.Getpid(), "VmRSS")
}
