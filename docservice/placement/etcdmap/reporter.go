package etcdmap

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/docservice/placement"
	"docstore/internal/contact"
	"docstore/internal/ctxtime"
)

// A Reporter keeps the state of a server in etcd. The server is live as long as it does.
type Reporter struct {
	store   *Store
	cancel  context.CancelFunc
	running sync.WaitGroup
	key     string // of the state
	etcd    *contact.Contact
	changed chan struct{} // capacity 1

	mu struct {
		sync.Mutex
		state placement.ServerState
	}
}

// Report begins to report the state of a server, until Close. The column and the row of a
// state cannot change; the number of the row is held by the caller.
func (s *Store) Report(state placement.ServerState) *Reporter {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reporter{
		store: s, cancel: cancel, etcd: contact.New("etcd (state of this server)", s.options.Logger.With("collection", s.collection)),
		key: s.statesKey() + state.Column + "/" + strconv.Itoa(state.Row), changed: make(chan struct{}, 1),
	}
	r.mu.state = state
	r.running.Go(func() { r.run(ctx) })
	return r
}

// Set replaces the state, which is written soon. The caller does not modify the shards
// afterwards.
func (r *Reporter) Set(state placement.ServerState) {
	r.mu.Lock()
	state.Column, state.Row = r.mu.state.Column, r.mu.state.Row
	r.mu.state = state
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Close removes the state: the server is not live any more.
func (r *Reporter) Close() error {
	r.cancel()
	r.running.Wait()
	return nil
}

// run keeps a lease and the state under it, and begins again after each failure.
func (r *Reporter) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.hold(ctx)
		if ctx.Err() == nil {
			r.etcd.Observe(err)
			ctxtime.Sleep(ctx, readAgain)
		}
	}
}

// hold reports under one lease until that fails.
func (r *Reporter) hold(ctx context.Context) error {
	s := r.store
	attempt, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	lease, err := s.client.Grant(attempt, int64(s.options.Lease/time.Second))
	if err != nil {
		return fmt.Errorf("etcdmap: %w", err)
	}
	defer s.revoke(lease.ID)
	alive, err := s.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return fmt.Errorf("etcdmap: %w", err)
	}
	for {
		revision, err := r.put(ctx, lease.ID)
		if err != nil {
			return err
		}
		r.etcd.Observe(nil)
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case _, ok := <-alive:
				if !ok {
					return fmt.Errorf("etcdmap: the lease of the server's state has ended")
				}
				again = r.lost(ctx, revision)
			case <-r.changed:
				again = true
			}
		}
	}
}

// put writes the state, and returns the revision at which it was written.
func (r *Reporter) put(ctx context.Context, lease clientv3.LeaseID) (revision int64, err error) {
	r.mu.Lock()
	state := r.mu.state
	r.mu.Unlock()
	content, err := json.Marshal(state)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.store.options.Timeout)
	defer cancel()
	answer, err := r.store.client.Put(ctx, r.key, string(content), clientv3.WithLease(lease))
	if err != nil {
		return 0, fmt.Errorf("etcdmap: %w", err)
	}
	return answer.Header.Revision, nil
}

// lost reports whether etcd has lost the state that was written at a revision: it was restored from
// a backup, which had the lease, so that renewals succeed.
func (r *Reporter) lost(ctx context.Context, revision int64) bool {
	ctx, cancel := context.WithTimeout(ctx, r.store.options.Timeout)
	defer cancel()
	answer, err := r.store.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.key), "=", revision)).Commit()
	return err == nil && !answer.Succeeded
}
