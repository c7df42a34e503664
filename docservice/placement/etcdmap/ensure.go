package etcdmap

import (
	"context"
	"fmt"

	"github.com/cockroachdb/errors"
	"go.etcd.io/etcd/client/v3/concurrency"

	"docstore/docservice/placement"
)

// Exists reports whether etcd has a map of the collection.
func (s *Store) Exists(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	_, _, err := s.readMap(ctx)
	if errors.Is(err, ErrNoMap) {
		return false, nil
	}
	return err == nil, err
}

// Ensure creates the map if etcd has none. If etcd has lost it, that is the last map of this
// Store with the next epoch; it is refused while a live server follows a later one. Without a
// last map it is the result of first, unless a live server follows a map.
func (s *Store) Ensure(ctx context.Context, first func(context.Context) (*placement.Map, error)) error {
	if exists, err := s.Exists(ctx); err != nil || exists {
		return err
	}
	states, err := s.States(ctx)
	if err != nil {
		return err
	}
	m, _ := s.Map()
	for _, one := range states {
		if m == nil && one.Epoch > 0 || m != nil && one.Epoch > m.Epoch {
			return fmt.Errorf("etcdmap: etcd has no placement of %q, and the server %s has a later one than this process: it has to restore it", s.collection, one.Address)
		}
	}
	if m == nil {
		if m, err = first(ctx); err != nil {
			return err
		}
	} else {
		restored := *m
		restored.Epoch++
		m = &restored
	}
	return s.Create(ctx, m, false)
}

// Exclusive calls f while no other process is in Exclusive for this collection.
func (s *Store) Exclusive(ctx context.Context, f func(context.Context) error) error {
	session, err := s.session(ctx)
	if err != nil {
		return fmt.Errorf("etcdmap: %w", err)
	}
	defer s.revoke(session.Lease())
	defer session.Orphan()
	mutex := concurrency.NewMutex(session, s.lockKey())
	if err := s.inTurn(ctx, session, s.lockKey(), mutex.Lock); err != nil {
		return err
	}
	return f(ctx)
}
