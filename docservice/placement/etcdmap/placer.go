package etcdmap

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"docstore/docservice/placement"
	"docstore/internal/ctxtime"
)

// stepInterval is the time between two steps of a placer.
const stepInterval = 500 * time.Millisecond

// errNotLeader: another placer was elected, or another command has changed the map.
var errNotLeader = errors.New("etcdmap: the map has changed, or another placer leads")

// errLaterMap: etcd was restored from a backup, and this process does not know the last map. It leaves
// the lead to the next placer, until one that knows the last map leads and writes it again.
var errLaterMap = errors.New("etcdmap: a live server follows a later map than that of etcd and of this process")

// Place takes the steps of the placement whenever this process is elected, until ctx ends.
// name identifies it to operators. sizes returns the bytes of each shard, as of the announced
// manifest. Several processes of a collection may call Place; one of them leads.
func (s *Store) Place(ctx context.Context, name string, sizes func() []int64) {
	for ctx.Err() == nil {
		err := s.lead(ctx, name, sizes)
		if ctx.Err() == nil {
			s.options.Logger.Info("this process does not place shards any more", "collection", s.collection, "error", err)
			ctxtime.Sleep(ctx, readAgain)
		}
	}
}

// lead waits for the election of this process, and takes steps until it ends.
func (s *Store) lead(ctx context.Context, name string, sizes func() []int64) error {
	session, err := s.session(ctx)
	if err != nil {
		return fmt.Errorf("etcdmap: %w", err)
	}
	defer s.revoke(session.Lease())
	defer session.Orphan()
	election := concurrency.NewElection(session, s.leaderKey())
	if err := s.inTurn(ctx, session, s.leaderKey(), func(ctx context.Context) error { return election.Campaign(ctx, name) }); err != nil {
		return err
	}
	s.options.Logger.Info("this process places shards", "collection", s.collection)
	p := placer{store: s, election: election}
	for {
		if err := p.step(ctx, sizes); err != nil {
			return err
		}
		select {
		case <-session.Done():
			return errNotLeader
		case <-time.After(stepInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// placer is an elected placer.
type placer struct {
	store    *Store
	election *concurrency.Election
	sizes    []int64 // as last written
	written  time.Time
}

// step takes one placement.Step and writes the map if it has changed.
func (p *placer) step(ctx context.Context, sizes func() []int64) error {
	s := p.store
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	m, revision, err := s.readMap(ctx)
	if errors.Is(err, ErrNoMap) {
		return nil
	}
	if err != nil {
		return err
	}
	if last, _ := s.Map(); last != nil && last.Generation == m.Generation && last.Epoch > m.Epoch {
		// etcd was restored from a backup. Servers follow no map that is not later than their last one.
		latest := *last
		latest.Epoch++
		s.options.Logger.Warn("the placement in etcd is older than the last one: writing the last one again", "collection", s.collection, "epoch", m.Epoch, "last", last.Epoch)
		return p.write(ctx, &latest, revision)
	}
	states, err := s.States(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(states, func(one placement.ServerState) bool { return one.Generation == m.Generation && one.Epoch > m.Epoch }) {
		return errLaterMap
	}
	control, _, err := s.control(ctx)
	if err != nil {
		return err
	}
	known := placement.Sizes(m, states)
	for i, bytes := range sizes() {
		if i < len(known) {
			known[i] = max(known[i], bytes)
		}
	}
	if err := p.keepSizes(ctx, m.Generation, known); err != nil {
		return err
	}
	after, events := placement.Step(m, states, known, control)
	if len(events) == 0 {
		return nil
	}
	if err := p.write(ctx, after, revision); err != nil {
		return err
	}
	for _, e := range events {
		s.options.Logger.Info("placement", "collection", s.collection, "epoch", after.Epoch, "event", e.String())
	}
	return nil
}

// write replaces the map of a revision, unless this process is no longer elected.
func (p *placer) write(ctx context.Context, m *placement.Map, revision int64) error {
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	s, election := p.store, p.election
	done, err := s.client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev()),
		clientv3.Compare(clientv3.ModRevision(s.mapKey()), "=", revision),
	).Then(clientv3.OpPut(s.mapKey(), string(content))).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("etcdmap: %w", err)
	case !done.Succeeded:
		return errNotLeader
	}
	return nil
}

// sizesInterval is the minimum time between two writes of the sizes.
const sizesInterval = 10 * time.Second

// storedSizes is the value of a key: the bytes of each shard.
type storedSizes struct {
	Generation string  `json:"generation"`
	Bytes      []int64 `json:"bytes"`
}

// keepSizes writes the sizes for Sizes if they have changed.
func (p *placer) keepSizes(ctx context.Context, generation string, sizes []int64) error {
	if slices.Equal(p.sizes, sizes) || p.sizes != nil && time.Since(p.written) < sizesInterval {
		return nil
	}
	if slices.Max(sizes) == 0 {
		return nil // the announced manifest is not known yet; the next sizes are written at once
	}
	content, err := json.Marshal(storedSizes{generation, sizes})
	if err != nil {
		return err
	}
	done, err := p.store.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.election.Key()), "=", p.election.Rev())).
		Then(clientv3.OpPut(p.store.sizesKey(), string(content))).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("etcdmap: %w", err)
	case !done.Succeeded:
		return errNotLeader
	}
	p.sizes, p.written = slices.Clone(sizes), time.Now()
	return nil
}

// Sizes returns the bytes of each shard of a map: the most that a server reports, or that the
// placer knows from the announced manifest.
func (s *Store) Sizes(ctx context.Context, m *placement.Map, states []placement.ServerState) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	sizes := placement.Sizes(m, states)
	response, err := s.client.Get(ctx, s.sizesKey())
	if err != nil {
		return nil, fmt.Errorf("etcdmap: %w", err)
	}
	for _, kv := range response.Kvs {
		var stored storedSizes
		if err := json.Unmarshal(kv.Value, &stored); err != nil {
			return nil, fmt.Errorf("etcdmap: %s: %w", kv.Key, err)
		}
		if stored.Generation != m.Generation || len(stored.Bytes) != len(sizes) {
			continue // of the generation before
		}
		for i, bytes := range stored.Bytes {
			sizes[i] = max(sizes[i], bytes)
		}
	}
	return sizes, nil
}

// readMap returns the map and the revision of its last change.
func (s *Store) readMap(ctx context.Context) (*placement.Map, int64, error) {
	response, err := s.client.Get(ctx, s.mapKey())
	if err != nil {
		return nil, 0, fmt.Errorf("etcdmap: %w", err)
	}
	if len(response.Kvs) == 0 {
		return nil, 0, ErrNoMap
	}
	m, err := s.parse(response.Kvs[0].Value)
	if err != nil {
		return nil, 0, fmt.Errorf("etcdmap: %w", err)
	}
	return m, response.Kvs[0].ModRevision, nil
}

// Leader returns the name of the elected placer, empty if there is none.
func (s *Store) Leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	// The leader is the one whose key is the oldest.
	response, err := s.client.Get(ctx, s.leaderKey()+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", fmt.Errorf("etcdmap: %w", err)
	}
	if len(response.Kvs) == 0 {
		return "", nil
	}
	return string(response.Kvs[0].Value), nil
}
