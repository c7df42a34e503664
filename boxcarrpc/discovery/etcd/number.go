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
	// renewals is the number of renewals within a TTL.
	renewals = 4
	// retryPause is the pause before a retry, with jitter. The pause of claims doubles
	// up to the time between renewals.
	retryPause = 300 * time.Millisecond
)

// A Number is the number of a server or a client. It is held while etcd is available. A
// goroutine claims it, renews it, and claims it again after a loss.
type Number struct {
	registry *Registry
	kind     kind
	entry    entry
	row      *RowOptions // nil: not a row
	cancel   context.CancelFunc
	done     chan struct{}
	shown    chan struct{} // capacity 1: Show was called

	mu struct {
		sync.Mutex
		number  int       // -1 for none
		until   time.Time // the number is not held after this time
		changed chan struct{}
		visible bool // to sources
	}
}

// Backend registers a server and holds a number for it until the number or the registry
// is closed. The server should be ready for requests.
func (r *Registry) Backend(server discovery.Server) (*Number, error) {
	if err := checkServer(server); err != nil {
		return nil, err
	}
	return r.hold(backends, entry{server.Address, server.Weight, server.Zone}, nil), nil
}

func checkServer(server discovery.Server) error {
	if server.Address == "" || server.Weight < 0 || math.IsInf(server.Weight, 0) || math.IsNaN(server.Weight) {
		return fmt.Errorf("etcd: server with address %q and weight %v: address must not be empty, weight must be at least 0", server.Address, server.Weight)
	}
	if err := discovery.CheckZone(server.Zone); err != nil {
		return fmt.Errorf("etcd: server with address %q: %w", server.Address, err)
	}
	return nil
}

// Frontend holds a number for a client until the number or the registry is closed. The
// name identifies the client to operators.
func (r *Registry) Frontend(name string) (*Number, error) {
	if name == "" {
		return nil, errors.New("etcd: the client's name is empty")
	}
	return r.hold(r.frontends(), entry{Address: name, Zone: r.options.Zone}, nil), nil
}

// hold holds a number, which is visible at once unless it is a row.
func (r *Registry) hold(k kind, e entry, row *RowOptions) *Number {
	n := &Number{registry: r, kind: k, entry: e, row: row, done: make(chan struct{}), shown: make(chan struct{}, 1)}
	n.mu.number, n.mu.changed, n.mu.visible = -1, make(chan struct{}), row == nil
	ctx, cancel := context.WithCancel(r.ctx)
	n.cancel = cancel
	r.holding.Go(func() {
		defer close(n.done)
		n.run(ctx)
	})
	return n
}

// Get returns the number. It is not ok if none is held now.
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
			return -1, errors.New("etcd: the number was closed")
		case <-ctx.Done():
			return -1, fmt.Errorf("etcd: no number claimed: %w", ctx.Err())
		}
	}
}

// Close releases the number.
func (n *Number) Close() error {
	n.cancel()
	<-n.done
	return nil
}

// set records that a number is held until a time, -1 for none.
func (n *Number) set(number int, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := n.mu.number != number
	n.mu.number, n.mu.until = number, until
	if changed {
		close(n.mu.changed)
		n.mu.changed = make(chan struct{})
	}
}

// run claims and holds numbers until ctx ends.
func (n *Number) run(ctx context.Context) {
	r := n.registry
	log := r.options.Logger.With("kind", string(n.kind), "address", n.entry.Address)
	last, logged, rest := -1, "", retryPause
	for ctx.Err() == nil {
		l, number, err := n.claim(ctx, last)
		last = number
		if err == nil {
			logged, rest = "", retryPause
			log.Info("holding a number", "number", number)
			err = n.keep(ctx, l, number)
			n.set(-1, time.Time{})
			l.reservation = clientv3.NoLease // it keeps the row for this address until it expires
		}
		if ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			log.Warn("holding no number", "error", err, "last", last)
		}
		r.revoke(l)
		pause(ctx, rest)
		rest = max(retryPause, min(2*rest, r.options.TTL/renewals)) // failures may be due to many claimants
	}
}

// keep renews a number until ctx ends or its leases have expired, and returns the cause.
// If etcd does not answer in time, the number is not held until etcd answers again: the
// claim still excludes other processes.
func (n *Number) keep(ctx context.Context, l leases, number int) error {
	r := n.registry
	for {
		until := l.sent.Add(r.options.TTL - r.options.Margin)
		n.set(number, until)
		n.rest(ctx, l, number)
		for held := true; ; {
			sent := time.Now()
			err := n.renew(ctx, l, number, until)
			if err == nil {
				l.sent = sent
				break
			}
			if ctx.Err() != nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, errClaimLost) {
				return err
			}
			if left := time.Until(until); left > 0 {
				pause(ctx, min(retryPause, left))
				continue
			}
			if held {
				held = false
				n.set(-1, time.Time{})
				r.options.Logger.Warn("holding no number until etcd answers", "kind", string(n.kind), "address", n.entry.Address, "number", number, "error", err)
			}
			pause(ctx, retryPause)
		}
	}
}

// renew renews the claim and then the entry: the claim must not expire before the entry. It
// verifies that etcd has both. If until is in the future, renew ends by then.
func (n *Number) renew(ctx context.Context, l leases, number int, until time.Time) error {
	r := n.registry
	if time.Now().Before(until) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	client, err := r.etcd()
	if err != nil {
		return err
	}
	for _, id := range []clientv3.LeaseID{l.claim, l.reservation, l.entry} {
		if id == clientv3.NoLease {
			continue
		}
		ctx, cancel := r.call(ctx)
		_, err := client.KeepAliveOnce(ctx, id)
		cancel()
		if err != nil {
			return err
		}
	}
	return n.check(ctx, l, number)
}

// errClaimLost is the error of a holder whose leases live, and whose claim does not: etcd was
// restored from a backup that has the leases, and not the keys that were put under them later.
var errClaimLost = errors.New("etcd has lost the claim: it was restored from a backup, or the key was deleted")

// check verifies that etcd has the claim, and writes an entry that it has lost.
func (n *Number) check(ctx context.Context, l leases, number int) error {
	call, cancel := n.registry.call(ctx)
	defer cancel()
	client, err := n.registry.etcd()
	if err != nil {
		return err
	}
	answer, err := client.Txn(call).If(n.claimed(l, number)).Then(clientv3.OpGet(n.entryKey(number))).Commit()
	switch {
	case err != nil:
		return err
	case !answer.Succeeded:
		return errClaimLost
	case !n.visible():
		return nil
	}
	if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || clientv3.LeaseID(kvs[0].Lease) != l.entry {
		return n.show(ctx, l, number)
	}
	return nil
}

// pause waits for d with jitter, or until ctx ends.
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
