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

// dialling is how many clients of idle connect at once.
const dialling = 32

// runIdle measures what clients cost a server that say nothing but that they are
// still there.
func runIdle(s settings) error {
	fmt.Printf("\n%-14s %8s %14s %14s %9s\n", "idle", "clients", "server MB", "bytes each", "cpu")
	all, err := contestantsNamed("boxcar", "boxcar-tls")
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := idle(c, s); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func idle(c contestant, s settings) (err error) {
	server, err := startChild(c.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	before, err := server.collected()
	if err != nil {
		return err
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
		return err
	}
	time.Sleep(s.settle)
	start := time.Now()
	cpu, err := cpuOf(server.pid())
	if err != nil {
		return err
	}
	time.Sleep(s.quiet)
	after, err := cpuOf(server.pid())
	if err != nil {
		return err
	}
	share := 100 * float64(after-cpu) / float64(time.Since(start))
	memory, err := server.collected()
	if err != nil {
		return err
	}
	fmt.Printf("%-14s %8d %6.0f to %4.0f %14d %8.2f%%\n", c.name, s.clients, float64(before)/1e6, float64(memory)/1e6,
		(int64(memory)-int64(before))/int64(s.clients), share)
	return nil
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
