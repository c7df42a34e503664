package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/cmd/internal/cli"
)

// readyPoll is how often a daemon that is to be registered checks whether it is ready.
const readyPoll = 100 * time.Millisecond

// maxWeight is the maximum capacity of a server.
const maxWeight = 1_000_000

// registration holds the flags of service discovery.
type registration struct {
	discovery string
	advertise string
	weight    float64
	zone      string // of this server and of its clients
}

func (e *registration) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&e.discovery, "discovery", "", "where to register this server once it is ready: "+
		"etcd://HOST:PORT[,...]/PREFIX[?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE], "+
		"or gossip://HOST:PORT[,...][?bind=HOST:PORT&key-file=FILE]; empty: nowhere")
	flags.StringVar(&e.advertise, "advertise", "", "address to register; empty: that of --boxcar, with the host name if it has none")
	flags.Float64Var(&e.weight, "weight", 1, "capacity of this server relative to the others")
	flags.StringVar(&e.zone, "zone", "", "zone or rack of this server: clients use the servers of their zone first; with --column, no row has servers of two zones; empty: unknown")
}

func (e *registration) check(column bool) error {
	var problems []error
	if e.discovery == "" && e.advertise != "" && !column {
		problems = append(problems, cli.Usagef("--advertise needs --discovery or --column; give both"))
	}
	if !(e.weight > 0 && e.weight <= maxWeight) {
		problems = append(problems, cli.Usagef("--weight %v: must be more than 0 and at most %d", e.weight, maxWeight))
	}
	if err := discovery.CheckZone(e.zone); err != nil {
		problems = append(problems, cli.Usagef("--zone: %w", err))
	}
	if e.discovery != "" {
		if err := byname.CanRegister(e.discovery); err != nil {
			problems = append(problems, cli.Usagef("--discovery %w", err))
		}
	}
	return errors.Join(problems...)
}

// register registers the daemon as soon as it is ready, until leave is called, which waits
// until it is unregistered.
func (d *process) register(ctx context.Context, e registration) (leave func()) {
	if e.discovery == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.stayEntered(ctx, e); err != nil {
			d.Note(fmt.Errorf("--discovery %s: %w", e.discovery, err), nil)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (d *process) stayEntered(ctx context.Context, e registration) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !d.Readiness().Ready {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	address, err := d.AdvertisedAddress(e.advertise)
	if err != nil {
		return err
	}
	entry, err := byname.Register(e.discovery, discovery.Server{Address: address, Weight: e.weight, Zone: e.zone}, d.Logger())
	if err != nil {
		return err
	}
	d.Logger().Info("entered", "address", address, "discovery", e.discovery)
	<-ctx.Done()
	if err := entry.Close(); err != nil {
		d.Logger().Warn("unregistering failed; the registration expires by itself", "error", err)
	}
	return nil
}
