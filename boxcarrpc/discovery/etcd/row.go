package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
)

// RowOptions configure Row.
type RowOptions struct {
	// First and Step select the numbers that are claimed: First, First+Step, and so on.
	// Servers of one zone of several claim the numbers of that zone.
	First, Step int
	// Rejoin is the time for which the number of a server that has ended is kept for its
	// address, in addition to the lease of the claim.
	Rejoin time.Duration
	// Token identifies something that only one process at a time can have, as a locked
	// directory. A process takes over the claim of its address and token at once: the
	// process that made it has ended. Without a token, and for the claim of another token,
	// it waits until the claim has expired.
	Token string
}

// Row is Backend for a server that keeps shards on its disk. It holds a number at once, but
// sources do not show the server before Show is called. A server that returns on the same
// address gets its last number if no other server has it. No other server claims that number
// until RowOptions.Rejoin has passed.
func (r *Registry) Row(server discovery.Server, opts RowOptions) (*Number, error) {
	if err := checkServer(server); err != nil {
		return nil, err
	}
	if opts.First < 0 || opts.Step <= opts.First || opts.Step > discovery.MaxNumber || opts.Rejoin < 0 {
		return nil, fmt.Errorf("etcd: rows from %d in steps of %d, kept for %s: want 0 <= first < step, and a time of at least 0", opts.First, opts.Step, opts.Rejoin)
	}
	if strings.Contains(server.Address, " ") {
		return nil, fmt.Errorf("etcd: the address %q of a row has a space", server.Address)
	}
	return r.hold(backends, entry{server.Address, server.Weight, server.Zone}, &opts), nil
}

// Show makes a row visible to sources while it holds a number. The server is ready for
// requests.
func (n *Number) Show() {
	n.mu.Lock()
	before := n.mu.visible
	n.mu.visible = true
	n.mu.Unlock()
	if !before {
		n.signal()
	}
}

// signal makes the goroutine of the number write the entry.
func (n *Number) signal() {
	select {
	case n.shown <- struct{}{}:
	default:
	}
}

func (n *Number) visible() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.visible
}

// rest waits until the next renewal. If Show is called meanwhile, it writes the entry.
func (n *Number) rest(ctx context.Context, l leases, number int) {
	renewal := n.registry.options.TTL / renewals
	ends, cancel := context.WithTimeout(ctx, renewal/2+rand.N(renewal)) // as pause
	defer cancel()
	for {
		select {
		case <-ends.Done():
			return
		case <-n.shown:
		}
		if err := n.show(ctx, l, number); err != nil {
			if ctx.Err() == nil {
				n.registry.options.Logger.Warn("the server is not visible yet; retrying", "number", number, "error", err)
			}
			pause(ends, retryPause)
			n.signal()
		}
	}
}

// show writes the entry of a number that is held. It does nothing if the claim is lost: the
// next one writes it.
func (n *Number) show(ctx context.Context, l leases, number int) error {
	ctx, cancel := n.registry.call(ctx)
	defer cancel()
	client, err := n.registry.etcd()
	if err != nil {
		return err
	}
	_, err = client.Txn(ctx).If(n.claimed(l, number)).Then(n.putEntry(l, number)).Commit()
	return err
}

// last has the address that held each row last, without a lease.
func (r *Registry) last() string { return r.prefix + "/last/" }

// reservations has the address for which each row is kept.
func (r *Registry) reservations() string { return r.prefix + "/rejoin/" }

// line returns the prefix of the queue. Claimants of different sequences do not wait for
// one another.
func (n *Number) line() string {
	if n.row == nil || n.row.Step == 1 {
		return n.registry.line(n.kind)
	}
	return fmt.Sprintf("%s/line/%s-%d-of-%d/", n.registry.prefix, n.kind, n.row.First, n.row.Step)
}

// sequence returns the numbers that may be claimed.
func (n *Number) sequence() (first, step int) {
	if n.row == nil {
		return 0, 1
	}
	return n.row.First, n.row.Step
}

// lookAtRows completes a scene.
func (n *Number) lookAtRows(s *scene, last, reservations []*mvccpb.KeyValue) {
	s.reserved = map[int]bool{}
	for _, kv := range reservations {
		if number, ok := numberOf(kv.Key, n.registry.reservations()); ok && string(kv.Value) != n.entry.Address {
			s.reserved[number] = true
		}
	}
	for _, kv := range last {
		if number, ok := numberOf(kv.Key, n.registry.last()); ok && string(kv.Value) == n.entry.Address {
			s.former = append(s.former, number)
		}
	}
	slices.Sort(s.former)
}

// unreserved returns the condition that a row is not kept for another address.
func (n *Number) unreserved(number int, seen scene) clientv3.Cmp {
	if slices.Contains(seen.former, number) {
		// Each claim replaces the last address.
		return clientv3.Compare(clientv3.Value(fmt.Sprint(n.registry.last(), number)), "=", n.entry.Address)
	}
	return clientv3.Compare(clientv3.CreateRevision(fmt.Sprint(n.registry.reservations(), number)), "=", 0)
}

// reserve returns the operations that keep a row for this address, and no others.
func (n *Number) reserve(l leases, number int, seen scene) []clientv3.Op {
	r := n.registry
	ops := []clientv3.Op{
		clientv3.OpPut(fmt.Sprint(r.last(), number), n.entry.Address),
		clientv3.OpPut(fmt.Sprint(r.reservations(), number), n.entry.Address, clientv3.WithLease(l.reservation)),
	}
	for _, former := range seen.former {
		if former != number {
			ops = append(ops, clientv3.OpDelete(fmt.Sprint(r.last(), former)), clientv3.OpDelete(fmt.Sprint(r.reservations(), former)))
		}
	}
	return ops
}

// Rows returns the numbers of rows that are claimed or kept for an address.
func (r *Registry) Rows(ctx context.Context) (map[int]string, error) {
	ctx, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return nil, err
	}
	answer, err := client.Txn(ctx).Then(
		clientv3.OpGet(r.reservations(), clientv3.WithPrefix()), clientv3.OpGet(r.claims(backends), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("etcd: reading the rows: %w", err)
	}
	rows := map[int]string{}
	for i, prefix := range []string{r.reservations(), r.claims(backends)} {
		for _, kv := range answer.Responses[i].GetResponseRange().Kvs {
			if number, ok := numberOf(kv.Key, prefix); ok {
				rows[number], _ = claimant(kv.Value)
			}
		}
	}
	return rows, nil
}
