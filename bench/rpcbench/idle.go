package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

// dialling is the number of clients that connect concurrently.
const dialling = 32

// runIdle measures the cost of clients that send only keep-alives.
func runIdle(s settings) error {
	fmt.Printf("\n%-14s %8s %14s %14s %9s\n", "idle", "clients", "server MB", "bytes each", "cpu")
	all, err := contestantsNamed("boxcar", "boxcar-tls")
	if err != nil {
		return err
	}
	for _, c := range all {
		f, err := s.keeper.Measure(c.name, "idle", 1, func() (map[string]float64, error) { return idle(c, s) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("%-14s %8d %6.0f to %4.0f %14.0f %8.2f%%\n", c.name, s.clients, f["before bytes"]/1e6, f["after bytes"]/1e6,
			f["bytes each"], 100*f["cpu share"])
	}
	return nil
}

func idle(c contestant, s settings) (figures map[string]float64, err error) {
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
	cpu, err := cpuOf(server.pid())
	if err != nil {
		return nil, err
	}
	time.Sleep(s.quiet)
	after, err := cpuOf(server.pid())
	if err != nil {
		return nil, err
	}
	share := float64(after.total()-cpu.total()) / float64(time.Since(start))
	memory, err := server.collected()
	if err != nil {
		return nil, err
	}
	return map[string]float64{
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
