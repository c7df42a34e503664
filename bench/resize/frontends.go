package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"docstore/bench/internal/authority"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
)

const (
	// Frontends learn of a change within this time.
	viewLag = 200 * time.Millisecond
	// slotsPerBackend of a frontend's pool.
	slotsPerBackend = 2
	readyTimeout    = 10 * time.Second
	method          = "/bench.Resize/Work"
)

// A backendSet is the numbers of the backends that clients know.
type backendSet struct {
	numbers int
	missing []int
}

func (s backendSet) has(n int) bool { return n < s.numbers && !slices.Contains(s.missing, n) }

// snapshot returns the set for one frontend.
func (s backendSet) snapshot(self, frontends int) discovery.Snapshot {
	out := discovery.Snapshot{Self: self, Frontends: frontends}
	for n := range s.numbers {
		if s.has(n) {
			out.Servers = append(out.Servers, discovery.Server{Number: n, Address: addressOf(n)})
			out.Numbers = n + 1
		}
	}
	return out
}

// frontends are the clients and their requests.
type frontends struct {
	settings settings
	all      []*frontend
	meter    *meter
	set      backendSet
	ctx      context.Context
	cancel   context.CancelFunc
	calling  sync.WaitGroup
}

type frontend struct {
	pool    *boxcarrpc.Pool
	updates chan discovery.Snapshot
	subset  core.Subset // as the pool chooses
	own     []int
}

// Watch makes a frontend the source of its pool.
func (f *frontend) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	for {
		select {
		case s := <-f.updates:
			update(s)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newFrontends(s settings, t trial, a *authority.Authority, m *meter) (*frontends, error) {
	f := &frontends{settings: s, meter: m}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	dialer := &net.Dialer{}
	for i := range s.frontends {
		tls, err := a.Client()
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		x := &frontend{updates: make(chan discovery.Snapshot, 1), subset: core.NewSubset(t.algorithm, s.k, 0)}
		x.pool, err = boxcarrpc.NewPool(x, &boxcarrpc.PoolOptions{
			Size: slotsPerBackend * s.k, Subset: t.algorithm, SubsetSize: s.k, LeaveAfter: t.leaveAfter,
			Methods: map[string]boxcarrpc.Method{method: {Idempotent: true}},
			TLS:     tls,
			Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err == nil {
					m.dialled.Add(1)
				}
				return conn, err
			},
			Seed: s.seed + uint64(i),
		})
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.all = append(f.all, x)
	}
	return f, nil
}

// ready waits until each frontend has a connection, and starts the requests.
func (f *frontends) ready() error {
	ctx, cancel := within(readyTimeout)
	defer cancel()
	for i, x := range f.all {
		if err := x.pool.WaitReady(ctx); err != nil {
			return err
		}
		f.calling.Go(func() { f.send(x, rand.New(rand.NewPCG(f.settings.seed, uint64(i)))) })
	}
	f.calling.Go(f.watchSlots)
	return nil
}

// tell passes a set to all frontends within viewLag, and returns the number of new
// connections.
func (f *frontends) tell(set backendSet) (connections int) {
	f.set = set
	for i, x := range f.all {
		own, _ := x.subset.Choose(core.View{Numbers: set.snapshot(0, 0).Numbers, Self: i, Frontends: len(f.all), Exists: set.has})
		for _, n := range own {
			if !slices.Contains(x.own, n) {
				connections++
			}
		}
		x.own = slices.Clone(own)
		f.calling.Go(func() {
			if f.pause(rand.N(viewLag)) {
				select {
				case x.updates <- set.snapshot(i, len(f.all)):
				case <-f.ctx.Done():
				}
			}
		})
	}
	return connections
}

// connectionsTo counts the connections to some of the backends.
func (f *frontends) connectionsTo(first, last int) (connections int) {
	for _, x := range f.all {
		for _, n := range x.own {
			if first <= n && n <= last {
				connections++
			}
		}
	}
	return connections
}

// send sends an open-loop load.
func (f *frontends) send(x *frontend, rng *rand.Rand) {
	for due := time.Now(); ; {
		due = due.Add(time.Duration(rng.ExpFloat64() / f.settings.rate * float64(time.Second)))
		if !f.pause(time.Until(due)) {
			return
		}
		f.calling.Go(func() {
			w := f.meter.current.Load()
			ctx, cancel := context.WithDeadline(f.ctx, due.Add(f.settings.deadline))
			defer cancel()
			_, err := x.pool.Call(ctx, method, nil, nil)
			w.add(time.Since(due), err)
		})
	}
}

// watchSlots records the fewest slots of any frontend.
func (f *frontends) watchSlots() {
	for f.pause(20 * time.Millisecond) {
		for _, x := range f.all {
			f.meter.current.Load().held(x.pool.Stats().Slots)
		}
	}
}

func (f *frontends) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

func (f *frontends) close() (err error) {
	f.cancel()
	for _, x := range f.all {
		err = errors.Join(err, x.pool.Close())
	}
	f.calling.Wait()
	return err
}
