package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/contact"
	"docstore/internal/ctxtime"
)

const (
	// gather is the time in which changes are combined into one update.
	gather = 100 * time.Millisecond
	// checkPause is the time between two checks that etcd has not gone back to an earlier state.
	checkPause = 10 * time.Second
	// numberWait is how long a watcher waits for the client's number before its first
	// update.
	numberWait = 3 * time.Second
)

// Source returns a source of the registered servers. self is the watching client's
// number, which is part of each snapshot. It may be nil.
func (r *Registry) Source(self *Number) discovery.Source { return &source{registry: r, self: self} }

type source struct {
	registry *Registry
	self     *Number
}

// A view is the watched state at a revision.
type view struct {
	servers  map[int]discovery.Server
	clients  map[int]bool // with CountFrontends
	revision int64
}

// Watch reports the servers until ctx ends. It fails if etcd fails before the first
// update.
func (s *source) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.self != nil {
		wait, cancel := context.WithTimeout(ctx, numberWait)
		_, _ = s.self.Wait(wait) // after the timeout the first update has no number
		cancel()
	}
	last := discovery.Snapshot{Numbers: -1}
	report := func(v view) {
		if now := s.snapshot(v); !last.Equal(now) {
			last = now
			update(now)
		}
	}
	var known view
	servers := contact.New("etcd (servers)", s.registry.options.Logger)
	for {
		v, err := s.registry.read(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			known = v
			servers.Observe(nil)
			report(v)
			err = s.follow(ctx, v, report)
		case last.Numbers < 0:
			return err
		default:
			report(known) // the client's number may be lost
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		servers.Observe(err)
		pause(ctx, retryPause)
	}
}

// read reads all servers, and with CountFrontends all clients, at one revision.
func (r *Registry) read(ctx context.Context) (view, error) {
	ctx, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return view{}, err
	}
	var gets []clientv3.Op
	for _, k := range r.watched() {
		gets = append(gets, clientv3.OpGet(r.entries(k), clientv3.WithPrefix()))
	}
	answer, err := client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return view{}, fmt.Errorf("etcd: %w", err)
	}
	v := view{servers: map[int]discovery.Server{}, clients: map[int]bool{}, revision: answer.Header.Revision}
	for _, part := range answer.Responses {
		for _, kv := range part.GetResponseRange().Kvs {
			r.apply(v, &clientv3.Event{Type: mvccpb.PUT, Kv: kv})
		}
	}
	return v, nil
}

// revision returns the revision of etcd.
func (r *Registry) revision(ctx context.Context) (int64, error) {
	ctx, cancel := r.call(ctx)
	defer cancel()
	client, err := r.etcd()
	if err != nil {
		return 0, err
	}
	answer, err := client.Get(ctx, r.entries(backends), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// apply applies a change to a view.
func (r *Registry) apply(v view, event *clientv3.Event) {
	if number, ok := numberOf(event.Kv.Key, r.entries(r.frontends())); ok {
		v.clients[number] = true
		if event.Type != mvccpb.PUT {
			delete(v.clients, number)
		}
	}
	number, ok := numberOf(event.Kv.Key, r.entries(backends))
	if !ok {
		r.warnIfNoNumber(event)
		return // a client or an unknown key
	}
	delete(v.servers, number)
	if event.Type != mvccpb.PUT {
		return
	}
	var e entry
	if err := json.Unmarshal(event.Kv.Value, &e); err != nil || e.Address == "" {
		r.options.Logger.Warn("invalid entry of a server", "key", string(event.Kv.Key), "error", err)
		return
	}
	if err := discovery.CheckZone(e.Zone); err != nil {
		r.options.Logger.Warn("ignoring the zone of a server", "key", string(event.Kv.Key), "error", err)
		e.Zone = ""
	}
	v.servers[number] = discovery.Server{Number: number, Address: e.Address, Weight: e.Weight, Zone: e.Zone}
}

// follow reports changes until the watch fails, and returns the error.
func (s *source) follow(ctx context.Context, v view, report func(view)) error {
	r := s.registry
	client, err := r.etcd()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	answers, ended := make(chan clientv3.WatchResponse), make(chan struct{}, len(r.watched()))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	from := v.revision + 1
	for _, k := range r.watched() {
		// Watch waits for etcd. The loop below must report the loss of the client's
		// number meanwhile.
		watching.Go(func() {
			defer func() { ended <- struct{}{} }()
			for answer := range client.Watch(ctx, r.entries(k), clientv3.WithPrefix(), clientv3.WithRev(from)) {
				select {
				case answers <- answer:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	revisions := make(chan int64)
	watching.Go(func() {
		for ctxtime.Sleep(ctx, checkPause) {
			if revision, err := r.revision(ctx); err == nil {
				select {
				case revisions <- revision:
				case <-ctx.Done():
				}
			}
		}
	})
	changed := s.changed()
	due := time.After(gather) // the number may have changed before
	for {
		select {
		case <-ended:
			return errors.New("the watch has ended")
		case answer := <-answers:
			if err := answer.Err(); err != nil {
				return err
			}
			for _, event := range answer.Events {
				r.apply(v, event)
			}
			v.revision = max(v.revision, answer.Header.Revision)
			if due == nil && len(answer.Events) > 0 {
				due = time.After(gather)
			}
		case <-changed:
			changed = s.changed()
			if due == nil {
				due = time.After(gather)
			}
		case <-due:
			due = nil
			report(v)
		case revision := <-revisions:
			if revision < v.revision {
				return fmt.Errorf("etcd has gone back from revision %d to %d: it was restored from a backup", v.revision, revision)
			}
		}
	}
}

// changed returns a channel that is closed when the client's number changes.
func (s *source) changed() <-chan struct{} {
	if s.self == nil {
		return nil
	}
	return s.self.Changed()
}

// warnIfNoNumber logs a server whose key does not end in a valid number. It is not used.
func (r *Registry) warnIfNoNumber(event *clientv3.Event) {
	key := string(event.Kv.Key)
	if event.Type == mvccpb.PUT && strings.HasPrefix(key, r.entries(backends)) {
		r.options.Logger.Warn("ignoring a server: its key must end in a number without leading zeros",
			"key", key, "highest", discovery.MaxNumber)
	}
}

func (s *source) snapshot(v view) discovery.Snapshot {
	servers, rest := discovery.Dense(slices.Collect(maps.Values(v.servers)))
	for _, server := range rest {
		s.registry.options.Logger.Warn("ignoring a server", "address", server.Address, "error", &discovery.NumberError{
			Source: "etcd key " + s.registry.entries(backends) + strconv.Itoa(server.Number),
			Number: server.Number, Limit: discovery.Limit(len(servers)),
		})
	}
	snapshot := discovery.Snapshot{Self: -1, Servers: servers}
	if n := len(servers); n > 0 {
		snapshot.Numbers = servers[n-1].Number + 1
	}
	if s.self != nil {
		if number, ok := s.self.Get(); ok {
			snapshot.Self = number
		}
	}
	for number := range v.clients {
		snapshot.Frontends = max(snapshot.Frontends, number+1)
	}
	return snapshot
}
