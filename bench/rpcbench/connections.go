package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"
)

// runConnections measures the memory of both sides per connection, after one call on each.
func runConnections(s settings) error {
	fmt.Printf("\n%-14s %8s %16s %16s\n", "connections", "clients", "server bytes", "client bytes")
	for _, c := range s.contestants {
		var server, here []float64
		for round := range s.rounds {
			f, err := s.keeper.Measure(c.name, fmt.Sprintf("connections, %d", s.conns), round+1, func() (map[string]float64, error) {
				return connections(c, s.conns)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			server, here = append(server, f["server bytes"]), append(here, f["client bytes"])
		}
		slices.Sort(server)
		slices.Sort(here)
		fmt.Printf("%-14s %8d %16.0f %16.0f\n", c.name, s.conns, median(server), median(here))
	}
	return nil
}

// connections measures clients with one caller each.
func connections(c contestant, count int) (figures map[string]float64, err error) {
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
	each := func(before, after uint64) float64 { return (float64(after) - float64(before)) / float64(count) }
	return map[string]float64{"server bytes": each(before, after), "client bytes": each(hereBefore, hereAfter)}, nil
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
func collectedHere() (uint64, error) {
	collect()
	return memoryOf(os.Getpid(), "VmRSS")
}
