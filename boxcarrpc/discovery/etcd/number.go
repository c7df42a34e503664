package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
)

const (
	// A number is renewed so many times within its TTL.
	renewals = 4
	// What failed is tried again after this time, and half to one and a half of it; a
	// claim after up to a renewal's time.
	retryPause = 300 * time.Millisecond
)

// A Number is a place among the servers or the clients, that is held as long as
// etcd can be reached. It is claimed, renewed and after a loss claimed anew in the
// background.
type Number struct {
	registry *Registry
	kind     kind
	entry    entry
	cancel   context.CancelFunc
	done     chan struct{}

	mu struct {
		sync.Mutex
		number  int       // -1 for none
		until   time.Time // not held from then on, whatever else is known
		changed chan struct{}
	}
}

// Backend enters a server and holds a number for it, until the number or the
// registry is closed. The server should be ready to serve.
func (r *Registry) Backend(server discovery.Server) (*Number, error) {
	if server.Address == "" || server.Weight < 0 || math.IsInf(server.Weight, 0) || math.IsNaN(server.Weight) {
		return nil, fmt.Errorf("etcd: a server with the address %q and the weight %v cannot be entered", server.Address, server.Weight)
	}
	return r.hold(backends, entry{server.Address, server.Weight}), nil
}

// Frontend holds a number among the clients. The name is for people.
func (r *Registry) Frontend(name string) (*Number, error) {
	if name == "" {
		return nil, errors.New("etcd: a client without a name cannot be entered")
	}
	return r.hold(frontends, entry{Address: name}), nil
}

func (r *Registry) hold(k kind, e entry) *Number {
	n := &Number{registry: r, kind: k, entry: e, done: make(chan struct{})}
	n.mu.number, n.mu.changed = -1, make(chan struct{})
	ctx, cancel := context.WithCancel(r.ctx)
	n.cancel = cancel
	r.holding.Go(func() {
		defer close(n.done)
		n.run(ctx)
	})
	return n
}

// Get returns the number, if it is held at this moment.
func (n *Number) Get() (number int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.number < 0 || !time.Now().Before(n.mu.until) {
		return -1, false
	}
	return n.mu.number, true
}

// Changed returns a channel that is closed when a number is gained or lost after
// this call.
func (n *Number) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.changed
}

// Wait waits until a number is held.
func (n *Number) Wait(ctx context.Context) (number int, err error) {
	for {
		changed := n.Changed()
		if number, ok := n.Get(); ok {
			return number, nil
		}
		select {
		case <-changed:
		case <-n.done:
			return -1, errors.New("etcd: the number was given back")
		case <-ctx.Done():
			return -1, fmt.Errorf("etcd: no number was to be had: %w", ctx.Err())
		}
	}
}

// Close gives the number back: others may have it from now on.
func (n *Number) Close() error {
	n.cancel()
	<-n.done
	return nil
}

// set tells that a number is held until a time; -1 for none.
func (n *Number) set(number int, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	news := n.mu.number != number
	n.mu.number, n.mu.until = number, until
	if news {
		close(n.mu.changed)
		n.mu.changed = make(chan struct{})
	}
}

// run claims and holds numbers until ctx ends.
func (n *Number) run(ctx context.Context) {
	r := n.registry
	log := r.options.Logger.With("kind", string(n.kind), "address", n.entry.Address)
	last, said, rest := -1, "", retryPause
	for ctx.Err() == nil {
		l, number, err := n.claim(ctx, last)
		last = number
		if err == nil {
			said, rest = "", retryPause
			log.Info("holding a number", "number", number)
			err = n.keep(ctx, l, number)
			n.set(-1, time.Time{})
		}
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("no number", "error", err, "last", last)
		}
		r.revoke(l)
		pause(ctx, rest)
		rest = max(retryPause, min(2*rest, r.options.TTL/renewals)) // many may have failed for they are many
	}
}

// keep renews a number until ctx ends or its leases are no more, and returns why. It
// is not held while etcd has not answered for too long; but as long as its claim is
// there nobody else has it, so that it is held again when etcd answers.
func (n *Number) keep(ctx context.Context, l leases, number int) error {
	r := n.registry
	for {
		until := l.sent.Add(r.options.TTL - r.options.Margin)
		n.set(number, until)
		pause(ctx, r.options.TTL/renewals)
		for held := true; ; {
			sent := time.Now()
			err := r.renew(ctx, l, until)
			if err == nil {
				l.sent = sent
				break
			}
			if ctx.Err() != nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return err
			}
			if left := time.Until(until); left > 0 {
				pause(ctx, min(retryPause, left))
				continue
			}
			if held {
				held = false
				n.set(-1, time.Time{})
				r.options.Logger.Warn("a number is not held until etcd answers", "kind", string(n.kind), "address", n.entry.Address, "number", number, "error", err)
			}
			pause(ctx, retryPause)
		}
	}
}

// renew renews the claim first: it must never end before the entry. It ends at a
// time if that is to come.
func (r *Registry) renew(ctx context.Context, l leases, until time.Time) error {
	if time.Now().Before(until) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	client, err := r.etcd()
	if err != nil {
		return err
	}
	for _, id := range []clientv3.LeaseID{l.claim, l.entry} {
		ctx, cancel := r.call(ctx)
		_, err := client.KeepAliveOnce(ctx, id)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// pause waits for about so long.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
