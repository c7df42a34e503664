package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
)

// leases are the leases of a number.
type leases struct {
	claim, entry clientv3.LeaseID
	reservation  clientv3.LeaseID // of a row; otherwise NoLease
	sent         time.Time        // when the last acknowledged renewal was sent
}

// claim creates leases and claims a number: last if it is free, otherwise the one that
// this row had in an earlier process, otherwise the lowest free number that is not
// reserved and not for a claimant ahead in the queue. The caller revokes the leases, also
// after an error; then number is the preferred one for the next claim.
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
	if n.row != nil {
		if l.reservation, err = r.grant(ctx, ttl+2*margin+n.row.Rejoin); err != nil {
			return l, last, err
		}
	}
	for _, number := range append([]int{last}, seen.former...) {
		if number < 0 || seen.taken[number] || seen.reserved[number] {
			continue
		}
		if won, err := n.take(ctx, l, number, seen); err != nil || won {
			return l, number, err
		}
	}
	if err := n.queue(ctx, l); err != nil {
		return l, last, err
	}
	for {
		if seen, err = n.look(ctx, l); err != nil {
			return l, last, err
		}
		if number = seen.next(n.sequence()); number < 0 {
			return l, -1, errors.New("all numbers are taken")
		}
		if won, err := n.take(ctx, l, number, seen); err != nil || won {
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
	return fmt.Sprintf("%s%x", n.line(), int64(l.claim))
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
	taken    map[int]bool
	own      int           // number claimed by this address, -1 for none
	ended    map[int]int64 // revisions of claims by earlier processes of this row, which have ended
	ahead    int           // claimants ahead in the queue
	reserved map[int]bool  // rows kept for another address
	former   []int         // rows last held by this address, in ascending order
}

// next returns the number of first, first+step, ... for this position in the queue, or -1:
// each claimant ahead takes a lower free one.
func (s scene) next(first, step int) (number int) {
	ahead := s.ahead
	for number = first; number <= discovery.MaxNumber; number += step {
		switch {
		case s.taken[number] || s.reserved[number]:
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
	gets := []clientv3.Op{
		clientv3.OpGet(r.claims(n.kind), clientv3.WithPrefix()),
		clientv3.OpGet(n.line(), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
	}
	if n.row != nil {
		gets = append(gets, clientv3.OpGet(r.last(), clientv3.WithPrefix()), clientv3.OpGet(r.reservations(), clientv3.WithPrefix()))
	}
	answer, err := client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return s, err
	}
	claims, line := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	s = scene{taken: make(map[int]bool, len(claims)), own: -1, ended: map[int]int64{}}
	for _, kv := range claims {
		number, ok := numberOf(kv.Key, r.claims(n.kind))
		if !ok {
			continue // not a claim
		}
		address, token := claimant(kv.Value)
		if address == n.entry.Address && n.row != nil && n.row.Token != "" && n.row.Token == token {
			s.ended[number] = kv.ModRevision
			continue
		}
		s.taken[number] = true
		if address == n.entry.Address {
			s.own = number
		}
	}
	for own := n.place(l); s.ahead < len(line) && string(line[s.ahead].Key) != own; {
		s.ahead++
	}
	if n.row != nil {
		n.lookAtRows(&s, answer.Responses[2].GetResponseRange().Kvs, answer.Responses[3].GetResponseRange().Kvs)
	}
	return s, nil
}

// claimValue is the value of a claim: the address and, of a row that has one, the token.
func (n *Number) claimValue() string {
	if n.row == nil || n.row.Token == "" {
		return n.entry.Address
	}
	return n.entry.Address + " " + n.row.Token
}

// claimant returns the address and the token, empty for none, of a claim's value.
func claimant(value []byte) (address, token string) {
	address, token, _ = strings.Cut(string(value), " ")
	return address, token
}

// take claims a number if it is free or an ended process of this row has it, and leaves the
// queue. The entry of the ended process is replaced, or deleted if this one is not visible.
func (n *Number) take(ctx context.Context, l leases, number int, seen scene) (won bool, err error) {
	r := n.registry
	claim := n.claimKey(number)
	free := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(claim), "=", seen.ended[number])} // 0: no claim
	puts := []clientv3.Op{
		clientv3.OpPut(claim, n.claimValue(), clientv3.WithLease(l.claim)),
		clientv3.OpDelete(n.place(l)),
	}
	switch {
	case n.visible():
		puts = append(puts, n.putEntry(l, number))
	case seen.ended[number] != 0:
		puts = append(puts, clientv3.OpDelete(n.entryKey(number)))
	}
	if n.row != nil {
		free, puts = append(free, n.unreserved(number, seen)), append(puts, n.reserve(l, number, seen)...)
	}
	call, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return false, err
	}
	answer, err := client.Txn(call).If(free...).Then(puts...).Commit()
	if err != nil {
		return false, err // if it was written, revoking the leases undoes it
	}
	return answer.Succeeded, nil
}

func (n *Number) claimKey(number int) string {
	return fmt.Sprint(n.registry.claims(n.kind), number)
}

// claimed returns the condition that etcd has the claim of a number.
func (n *Number) claimed(l leases, number int) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(n.claimKey(number)), "=", l.claim)
}

func (n *Number) entryKey(number int) string {
	return fmt.Sprint(n.registry.entries(n.kind), number)
}

// putEntry returns the operation that shows the server to sources.
func (n *Number) putEntry(l leases, number int) clientv3.Op {
	return clientv3.OpPut(n.entryKey(number), n.entry.encode(), clientv3.WithLease(l.entry))
}

// revoke revokes unused leases, the entry's first. If etcd is unavailable, they expire.
func (r *Registry) revoke(l leases) {
	ctx, cancel := r.call(context.WithoutCancel(r.ctx))
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return // there are no leases
	}
	for _, id := range []clientv3.LeaseID{l.entry, l.claim, l.reservation} {
		if id == clientv3.NoLease {
			continue
		}
		if _, err := client.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			r.options.Logger.Debug("a lease was not revoked and will expire", "error", err)
			return
		}
	}
}
