package etcdmap

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// errTurnLost: the wait for a turn would not end.
var errTurnLost = errors.New("etcd has lost the turn of this process, or was restored from a backup")

// session returns a session for an election or a mutex. The caller calls Orphan and then revoke.
func (s *Store) session(ctx context.Context) (*concurrency.Session, error) {
	return concurrency.NewSession(s.client, concurrency.WithTTL(int(s.options.Lease/time.Second)), concurrency.WithContext(ctx))
}

// revoke ends a lease at once, if etcd is available; otherwise it expires.
func (s *Store) revoke(lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout)
	defer cancel()
	_, _ = s.client.Revoke(ctx, lease) // it ends without that, too
}

// inTurn calls wait, an election or a mutex of a session on the keys under prefix, and returns its
// error. They wait until the key before theirs is deleted. After a restoration of etcd from a backup the
// deletion can have an earlier revision than their watch, and their own key can be lost. Then, and when
// ctx or the lease ends, inTurn returns at once; wait removes its key in the background, until the
// Store is closed, since that has no limit of time.
func (s *Store) inTurn(ctx context.Context, session *concurrency.Session, prefix string, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var checking sync.WaitGroup
	checking.Go(func() {
		check := time.NewTicker(checkPause)
		defer check.Stop()
		for {
			select {
			case <-check.C:
				if s.waits(ctx, session, prefix) {
					continue
				}
			case <-session.Done():
			case <-ctx.Done():
				return
			}
			cancel(errTurnLost)
			return
		}
	})
	done := make(chan error, 1)
	s.cleaning.Go(func() { done <- wait(ctx) })
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel(nil)
	checking.Wait()
	if err != nil {
		return fmt.Errorf("etcdmap: %w", err)
	}
	return nil
}

// waits reports whether the key of a session under prefix is behind another one, or whether that is not
// known.
func (s *Store) waits(ctx context.Context, session *concurrency.Session, prefix string) bool {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	response, err := s.client.Get(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return true
	}
	own := fmt.Sprintf("%s/%x", prefix, session.Lease())
	for i, kv := range response.Kvs {
		if string(kv.Key) == own {
			return i > 0
		}
	}
	return false
}
