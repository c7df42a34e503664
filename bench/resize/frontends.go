package main

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"docstore/bench/internal/authority"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

const (
	// Frontends learn of a change within this time.
	viewLag = 200 * time.Millisecond
	// slotsPerBackend of a frontend's pool.
	slotsPerBackend = 2
	readyTimeout    = 10 * time.Second
	rate            = 100 // requests a second of a frontend
	method          = "/bench.Resize/Work"
)

// snapshot returns the set of the first backends for one frontend.
func snapshot(backends, self, frontends int) discovery.Snapshot {
	out := discovery.Snapshot{Self: self, Frontends: frontends, Numbers: backends}
	for n := range backends {
		out.Servers = append(out.Servers, discovery.Server{Number: n, Address: addressOf(n)})
	}
	return out
}

// frontends are the clients and their requests.
type frontends struct {
	settings settings
	all      []*frontend
	fewest   atomic.Int64 // slots of a frontend
	ctx      context.Context
	cancel   context.CancelFunc
	calling  sync.WaitGroup
}

type frontend struct {
	pool    *boxcarrpc.Pool
	updates chan discovery.Snapshot
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

func newFrontends(s settings, t trial, a *authority.Authority) (*frontends, error) {
	f := &frontends{settings: s}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for i := range s.frontends {
		certificate, err := a.Issue()
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		config := &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
			RootCAs: a.Pool, ClientSessionCache: tls.NewLRUClientSessionCache(1 << 10), // as in package credentials
		}
		x := &frontend{updates: make(chan discovery.Snapshot, 1)}
		x.pool, err = boxcarrpc.NewPool(x, &boxcarrpc.PoolOptions{
			Size: slotsPerBackend * s.k, Subset: t.algorithm, SubsetSize: s.k, LeaveAfter: t.leaveAfter,
			Methods: map[string]boxcarrpc.Method{method: {Idempotent: true}},
			TLS:     authority.Always(config),
			Seed:    s.seed + uint64(i),
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
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for i, x := range f.all {
		if err := x.pool.WaitReady(ctx); err != nil {
			return err
		}
		f.calling.Go(func() { f.send(x, rand.New(rand.NewPCG(f.settings.seed, uint64(i)))) })
	}
	return nil
}

// tell tells all frontends the number of backends within viewLag.
func (f *frontends) tell(backends int) {
	for i, x := range f.all {
		f.calling.Go(func() {
			if f.pause(rand.N(viewLag)) {
				select {
				case x.updates <- snapshot(backends, i, len(f.all)):
				case <-f.ctx.Done():
				}
			}
		})
	}
}

// send sends an open-loop load.
func (f *frontends) send(x *frontend, rng *rand.Rand) {
	for due := time.Now(); ; {
		due = due.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		if !f.pause(time.Until(due)) {
			return
		}
		f.calling.Go(func() {
			ctx, cancel := context.WithDeadline(f.ctx, due.Add(f.settings.deadline))
			defer cancel()
			_, _ = x.pool.Call(ctx, method, nil, nil) // some fail without make before break
		})
	}
}

// watchSlots records the fewest slots of any frontend from now on.
func (f *frontends) watchSlots() {
	for f.pause(20 * time.Millisecond) {
		for _, x := range f.all {
			f.fewest.Store(min(f.fewest.Load(), int64(x.pool.Stats().Slots)))
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
