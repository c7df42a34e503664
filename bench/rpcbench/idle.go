package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"docstore/bench/internal/process"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

// dialling is the number of clients that connect concurrently.
const dialling = 32

// idle measures the cost of clients that send only keep-alives.
func (s *settings) idle(c contestant) (f figures, err error) {
	server, err := startChild(c.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	before, err := server.collected()
	if err != nil {
		return nil, err
	}
	clients := make([]*boxcarrpc.Pool, s.clients)
	defer func() {
		for _, client := range clients {
			if client != nil {
				err = errors.Join(err, client.Close())
			}
		}
	}()
	options := boxcarrpc.PoolOptions{Size: 1}
	if c.name == "boxcar-tls" {
		options.TLS = boxcarClientTLS
	}
	if err := connectIdle(clients, server.address, options); err != nil {
		return nil, err
	}
	time.Sleep(s.settle)
	start := time.Now()
	cpu := process.CPUSeconds([]*process.Process{server.process})
	time.Sleep(s.quiet)
	share := (process.CPUSeconds([]*process.Process{server.process}) - cpu) / time.Since(start).Seconds()
	memory, err := server.collected()
	if err != nil {
		return nil, err
	}
	return figures{
		"before bytes": float64(before), "after bytes": float64(memory),
		"bytes each": (float64(memory) - float64(before)) / float64(s.clients), "cpu share": share,
	}, nil
}

func connectIdle(clients []*boxcarrpc.Pool, address string, options boxcarrpc.PoolOptions) error {
	var group errgroup.Group
	group.SetLimit(dialling)
	for i := range clients {
		group.Go(func() (err error) {
			clients[i], err = boxcarrpc.NewPool(discovery.Static(address), &options)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			return clients[i].WaitReady(ctx)
		})
	}
	return group.Wait()
}
