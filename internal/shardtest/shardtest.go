// Package shardtest serves a sharded collection for tests: servers in this process, which
// register and report their state in a real etcd as daemons do.
package shardtest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/discovery/etcd"
	"docstore/docservice/collection"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/internal/etcdtest"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// Collection is the name of the collection.
const Collection = "jobs"

// Limit is the limit of bytes of each server.
const Limit = 1 << 20

const patience = 2 * time.Minute

// Cluster is a collection and its servers.
type Cluster struct {
	Etcd      *etcdtest.Server
	Store     *etcdmap.Store
	Layout    shard.Layout
	Documents map[string]string
	IDs       []string

	t      testing.TB
	shards []*collection.Collection
}

// Server is a server of a column. It follows each placement, and removes no shard.
type Server struct {
	Address  string
	cluster  *Cluster
	stop     chan struct{}
	stopping sync.Once
	running  sync.WaitGroup
	service  *collection.Service
	boxcar   *boxcarrpc.Server
	registry *etcd.Registry
	reporter *etcdmap.Reporter

	mu struct {
		sync.Mutex
		state placement.ServerState
	}
}

// Context returns a context that ends with the test, or after a time that is longer than
// any wait on a loaded machine.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// New makes a collection of so many shards and documents, at least one in each shard, and its
// map without assignments.
// A placer runs until the end of the test.
func New(t testing.TB, shards, documents int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Etcd: etcdtest.Start(t), Layout: shard.Layout{Shards: shards}, Documents: map[string]string{}}
	if shards > 1 {
		c.Layout.Seed = 7
	}
	c.write(documents)
	var err error
	c.Store, err = etcdmap.Open(c.Etcd.Address, Collection, &etcdmap.Options{Lease: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Store.Close()) })
	require.NoError(t, c.Store.Create(Context(t), &placement.Map{
		Collection: Collection, Generation: "g", Epoch: 1, Layout: c.Layout, Shards: make([]placement.Place, shards),
	}, false))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Store.Place(ctx, "placer", func() []int64 { return nil })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

// write writes the queues of the shards and opens their collections.
func (c *Cluster) write(documents int) {
	fs := vfs.NewMem()
	w, err := shardset.Open("/queue", &shardset.Options{FS: fs, Layout: c.Layout})
	require.NoError(c.t, err)
	for i := range documents {
		id := fmt.Sprintf("doc-%05d", i)
		c.IDs = append(c.IDs, id)
		c.Documents[id] = fmt.Sprintf(`{"id":%q,"n":%d}`, id, i)
		require.NoError(c.t, w.Put(queue.Record{ID: []byte(id), Document: []byte(c.Documents[id])}))
	}
	require.NoError(c.t, w.Close())
	for i := range c.Layout.Shards {
		one, err := collection.Open(shard.Name(Collection, i), c.Layout.Dir("/queue", i), c.Layout.Dir("/data", i), &collection.Options{FS: fs})
		require.NoError(c.t, err)
		c.t.Cleanup(func() { assert.NoError(c.t, one.Close()) })
		require.NoError(c.t, one.WaitReady(Context(c.t)))
		c.shards = append(c.shards, one)
	}
}

// Bytes is the size that a server reports for a shard.
func Bytes(i int) int64 { return 1000 + int64(i) }

// Start starts a server, registers it in its column, and reports its state, without shards.
// page is the URL of its status page.
func (c *Cluster) Start(column, page string) *Server {
	c.t.Helper()
	s := &Server{cluster: c, service: collection.NewService(), stop: make(chan struct{})}
	s.service.Divide(Collection, c.Layout)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	s.Address = listener.Addr().String()
	s.boxcar = boxcarrpc.NewServer(s.service.Handle, &boxcarrpc.ServerOptions{HandshakeTimeout: patience, WriteTimeout: patience})
	served := make(chan error, 1)
	go func() { served <- s.boxcar.Serve(listener) }()
	s.registry, err = c.Store.Column(column)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		s.Stop()
		assert.ErrorIs(c.t, <-served, boxcarrpc.ErrServerClosed)
	})
	number, err := s.registry.Backend(discovery.Server{Address: s.Address})
	require.NoError(c.t, err)
	row, err := number.Wait(Context(c.t))
	require.NoError(c.t, err)
	s.mu.state = placement.ServerState{Address: s.Address, Page: page, Zone: fmt.Sprintf("zone-%d", row), Column: column, Row: row, Limit: Limit}
	s.reporter = c.Store.Report(s.mu.state)
	s.running.Go(s.follow)
	return s
}

// follow reports the epoch of each placement.
func (s *Server) follow() {
	for {
		m, changed := s.cluster.Store.Map()
		if m != nil {
			s.report(func(state *placement.ServerState) { state.Epoch = m.Epoch })
		}
		select {
		case <-changed:
		case <-s.stop:
			return
		}
	}
}

// report changes the reported state.
func (s *Server) report(edit func(*placement.ServerState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.mu.state)
	s.reporter.Set(s.mu.state)
}

// Stop stops a server: it is not live any more.
func (s *Server) Stop() {
	s.stopping.Do(func() { close(s.stop) })
	s.running.Wait()
	if s.reporter != nil {
		assert.NoError(s.cluster.t, s.reporter.Close())
	}
	assert.NoError(s.cluster.t, s.registry.Close())
	assert.NoError(s.cluster.t, s.boxcar.Close())
}

// Fetch reports that the server has fetched so many bytes of a shard, and does not serve it.
func (s *Server) Fetch(i int, fetched int64) {
	s.set(placement.ShardState{Shard: i, Bytes: Bytes(i), Fetched: fetched, Target: 3})
}

// Hold serves shards and reports them as ready.
func (s *Server) Hold(shards ...int) {
	for _, i := range shards {
		s.service.Replace(s.cluster.shards[i])
		s.set(placement.ShardState{Shard: i, Ready: true, Bytes: Bytes(i), Fetched: Bytes(i), Manifest: 3, Target: 3})
	}
}

// set reports the state of a shard.
func (s *Server) set(one placement.ShardState) {
	s.report(func(state *placement.ServerState) {
		shards := slices.DeleteFunc(slices.Clone(state.Shards), func(other placement.ShardState) bool { return other.Shard == one.Shard })
		shards = append(shards, one)
		slices.SortFunc(shards, func(a, b placement.ShardState) int { return a.Shard - b.Shard })
		state.Shards, state.Used = shards, 0
		for _, held := range shards {
			state.Used += held.Fetched
		}
	})
}

// Want applies a plan: the column of each shard.
func (c *Cluster) Want(columns ...string) {
	c.t.Helper()
	require.NoError(c.t, c.Store.UpdateControl(Context(c.t), func(control *placement.Control) error {
		control.Wanted = columns
		return nil
	}))
}

// Wait waits until the map has a property.
func (c *Cluster) Wait(wanted func(*placement.Map) bool) *placement.Map {
	c.t.Helper()
	ctx := Context(c.t)
	for {
		m, changed := c.Store.Map()
		if m != nil && wanted(m) {
			return m
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(c.t, "the map does not arrive", "%+v", m)
		}
	}
}

// States reports whether n servers report their state.
func (c *Cluster) States(n int) bool {
	c.t.Helper()
	states, err := c.Store.States(Context(c.t))
	require.NoError(c.t, err)
	return len(states) == n
}

// Even starts a server in each column, and places the shards on them in turn.
func (c *Cluster) Even(columns ...string) map[string]*Server {
	c.t.Helper()
	servers := map[string]*Server{}
	wanted := make([]string, c.Layout.Shards)
	for _, column := range columns {
		servers[column] = c.Start(column, "")
	}
	for i := range wanted {
		wanted[i] = columns[i%len(columns)]
		servers[wanted[i]].Hold(i)
	}
	c.Want(wanted...)
	c.Wait(func(m *placement.Map) bool {
		return !slices.ContainsFunc(m.Shards, func(p placement.Place) bool { return p.Column == "" })
	})
	return servers
}
