package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
)

// leases are the leases of a number.
type leases struct {
	claim, entry clientv3.LeaseID
	sent         time.Time // when the last acknowledged renewal was sent
}

// claim creates leases and claims a number: last if it is free, otherwise the lowest
// free number that is not for a claimant ahead in the queue. The caller revokes the
// leases, also after an error; then number is the preferred one for the next claim.
func (n *Number) claim(ctx context.Context, last int) (l leases, number int, err error) {
	r := n.registry
	seen, err := n.look(ctx, l)
	switch {
	case err != nil:
		return l, last, err
	case seen.own >= 0 && n.kind == backends:
		return l, seen.own, fmt.Errorf("waiting for the old claim of this address to number %d to expire; if it does not, another server has the same address", seen.own)
	}
	l.sent = time.Now()
	ttl, margin := r.options.TTL, r.options.Margin
	if l.claim, err = r.grant(ctx, ttl+2*margin); err != nil {
		return l, last, err
	}
	if l.entry, err = r.grant(ctx, ttl); err != nil {
		return l, last, err
	}
	if last >= 0 && !seen.taken[last] {
		if won, err := n.take(ctx, l, last); err != nil || won {
			return l, last, err
		}
	}
	if err := n.queue(ctx, l); err != nil {
		return l, last, err
	}
	for {
		if seen, err = n.look(ctx, l); err != nil {
			return l, last, err
		}
		if number = seen.next(); number < 0 {
			return l, -1, errors.New("all numbers are taken")
		}
		if won, err := n.take(ctx, l, number); err != nil || won {
			return l, number, err
		}
	}
}

func (r *Registry) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	ctx, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return clientv3.NoLease, err
	}
	// Round up to seconds.
	lease, err := client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return clientv3.NoLease, err
	}
	return lease.ID, nil
}

// place returns the key of a claimant in the queue.
func (n *Number) place(l leases) string {
	return fmt.Sprintf("%s%x", n.registry.line(n.kind), int64(l.claim))
}

// queue adds the claimant to the end of the queue.
func (n *Number) queue(ctx context.Context, l leases) error {
	ctx, cancel := n.registry.call(ctx)
	defer cancel()
	client, err := n.registry.etcd()
	if err != nil {
		return err
	}
	_, err = client.Put(ctx, n.place(l), "", clientv3.WithLease(l.claim))
	return err
}

// A scene is the state of numbers and queue at one moment.
type scene struct {
	taken map[int]bool
	own   int // number claimed by this address, -1 for none
	ahead int // claimants ahead in the queue
}

// next returns the number for this position in the queue, or -1: each claimant ahead
// takes a lower free one.
func (s scene) next() (number int) {
	for ahead := s.ahead; number <= discovery.MaxNumber; number++ {
		switch {
		case s.taken[number]:
		case ahead == 0:
			return number
		default:
			ahead--
		}
	}
	return -1
}

// look reads the claims and the queue.
func (n *Number) look(ctx context.Context, l leases) (s scene, err error) {
	r := n.registry
	ctx, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return s, err
	}
	answer, err := client.Txn(ctx).Then(
		clientv3.OpGet(r.claims(n.kind), clientv3.WithPrefix()),
		clientv3.OpGet(r.line(n.kind), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
	).Commit()
	if err != nil {
		return s, err
	}
	claims, line := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	s = scene{taken: make(map[int]bool, len(claims)), own: -1}
	for _, kv := range claims {
		number, ok := numberOf(kv.Key, r.claims(n.kind))
		if !ok {
			continue // not a claim
		}
		s.taken[number] = true
		if string(kv.Value) == n.entry.Address {
			s.own = number
		}
	}
	for own := n.place(l); s.ahead < len(line) && string(line[s.ahead].Key) != own; {
		s.ahead++
	}
	return s, nil
}

// take claims a number if it is free, and leaves the queue.
func (n *Number) take(ctx context.Context, l leases, number int) (won bool, err error) {
	r := n.registry
	claim := fmt.Sprint(r.claims(n.kind), number)
	call, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return false, err
	}
	answer, err := client.Txn(call).
		If(clientv3.Compare(clientv3.CreateRevision(claim), "=", 0)).
		Then(
			clientv3.OpPut(claim, n.entry.Address, clientv3.WithLease(l.claim)),
			clientv3.OpPut(fmt.Sprint(r.entries(n.kind), number), n.entry.encode(), clientv3.WithLease(l.entry)),
			clientv3.OpDelete(n.place(l)),
		).Commit()
	if err != nil {
		return false, err // if it was written, revoking the leases undoes it
	}
	return answer.Succeeded, nil
}

// revoke revokes unused leases, the entry's first. If etcd is unavailable, they expire.
func (r *Registry) revoke(l leases) {
	ctx, cancel := r.call(context.WithoutCancel(r.ctx))
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return // there are no leases
	}
	for _, id := range []clientv3.LeaseID{l.entry, l.claim} {
		if id == clientv3.NoLease {
			continue
		}
		if _, err := client.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			r.options.Logger.Debug("a lease was not revoked and will expire", "error", err)
			return
		}
	}
}
