package column

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/docservicepb"
	"docstore/docservice/follow"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/readiness"
	"docstore/docservice/sharded"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/etcdtest"
	"docstore/queue"
	queueshard "docstore/queue/shard"
	"docstore/queue/shardset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 2 * time.Minute
	shards   = 4
)

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// cluster is a collection whose shards are queues on disk, and an etcd.
type cluster struct {
	t         testing.TB
	etcd      *etcdtest.Server
	store     *etcdmap.Store
	layout    queueshard.Layout
	queues    string
	documents map[string]string
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{t: t, etcd: etcdtest.Start(t), layout: queueshard.Layout{Shards: shards, Seed: 7}, queues: t.TempDir(), documents: map[string]string{}}
	w, err := shardset.Open(c.queues, &shardset.Options{Layout: c.layout})
	require.NoError(t, err)
	for i := range 100 {
		id := fmt.Sprint("doc-", i)
		c.documents[id] = fmt.Sprint("document ", i)
		require.NoError(t, w.Put(queue.Record{ID: []byte(id), Document: []byte(c.documents[id])}))
	}
	require.NoError(t, w.Close())
	c.store = c.open("")
	return c
}

// create makes the map, so that servers need not wait until they may.
func (c *cluster) create() *cluster {
	require.NoError(c.t, c.store.Create(soon(c.t), &placement.Map{
		Collection: "jobs", Generation: "g", Epoch: 1, Layout: c.layout, Shards: make([]placement.Place, shards),
	}, false))
	return c
}

func (c *cluster) open(file string) *etcdmap.Store {
	s, err := etcdmap.Open(c.etcd.Address, "jobs", &etcdmap.Options{File: file, Lease: time.Second, Timeout: time.Second})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { assert.NoError(c.t, s.Close()) })
	return s
}

// server is a server of a column. Its followers are fakes: they open the queues.
type server struct {
	*Column
	c       *cluster
	dir     string
	options Options
	service *collection.Service
	boxcar  *boxcarrpc.Server

	mu struct {
		sync.Mutex
		slow bool // followers are not ready
	}
}

// fake is a Follower that opens a queue.
type fake struct {
	*collection.Collection
	s *server
}

func (f *fake) Status() follow.Status {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.mu.slow || !f.Ready() {
		return follow.Status{Target: 1, Files: readiness.Report{State: readiness.Fetching, Cause: "it is slow"}}
	}
	return follow.Status{Target: 1, Served: 1, Files: readiness.Report{State: readiness.Ready}}
}

func (s *server) setSlow(slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.slow = slow
}

// start starts a server of a column in a directory.
func (c *cluster) start(column, zone, dir string, edit func(*Options)) *server {
	c.t.Helper()
	s := &server{c: c, dir: dir, service: collection.NewService()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	s.options = Options{
		Collection: "jobs", Dir: dir, Column: column, Zone: zone, Server: discovery.Server{Address: listener.Addr().String()},
		Store: c.open(MapFile(dir)), Service: s.service, DrainTime: time.Millisecond,
		Announced: func(context.Context) (Announced, error) {
			return Announced{Generation: "g", Layout: c.layout, Bytes: []int64{10, 11, 12, 13}}, nil
		},
		Disk: func() (used, limit int64, err error) { return 100, 1 << 20, nil },
		Open: func(_ queueshard.Layout, i int, dir string, serve func(*collection.Collection)) (Follower, error) {
			opened, err := collection.Open(queueshard.Name("jobs", i), c.layout.Dir(c.queues, i), dir, nil)
			if err != nil {
				return nil, err
			}
			serve(opened)
			return &fake{opened, s}, nil
		},
	}
	if edit != nil {
		edit(&s.options)
	}
	s.boxcar = boxcarrpc.NewServer(s.service.Handle, nil)
	served := make(chan error, 1)
	go func() { served <- s.boxcar.Serve(listener) }()
	s.Column, err = Open(s.options)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		assert.NoError(c.t, s.boxcar.Close())
		<-served
		assert.NoError(c.t, s.Close())
	})
	return s
}

func (c *cluster) want(columns ...string) {
	c.t.Helper()
	require.NoError(c.t, c.store.UpdateControl(soon(c.t), func(control *placement.Control) error {
		control.Wanted = columns
		return nil
	}))
}

func (c *cluster) until(what string, condition func() bool) {
	c.t.Helper()
	require.Eventually(c.t, condition, patience, 10*time.Millisecond, what)
}

func (c *cluster) waitMap(columns ...string) {
	c.t.Helper()
	c.until(fmt.Sprint("the placement is ", columns), func() bool {
		m, _ := c.store.Map()
		if m == nil {
			return false
		}
		var now []string
		for _, p := range m.Shards {
			now = append(now, p.Column+p.Next)
		}
		return slices.Equal(now, columns)
	})
}

func (c *cluster) client() *sharded.Client {
	client, err := sharded.NewClient(c.store, "jobs", etcdclient.ClientOptions(c.store, &etcdclient.Options{}))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { assert.NoError(c.t, client.Close()) })
	return client
}

// readAll requires the right answer for each id.
func (c *cluster) readAll(client *sharded.Client) {
	c.t.Helper()
	for id, want := range c.documents {
		document, err := client.Get(soon(c.t), nil, id)
		require.NoError(c.t, err, id)
		require.Equal(c.t, want, string(document))
	}
	_, err := client.Get(soon(c.t), nil, "none")
	require.ErrorIs(c.t, err, docservice.ErrNotFound)
}

func (s *server) shardStates() map[int]State {
	states := map[int]State{}
	for _, one := range s.Status().Shards {
		states[one.Shard] = one.State
	}
	return states
}

// A move: the new column fetches and serves, the old one keeps the shard, and then removes it.
func TestMove(t *testing.T) {
	c := newCluster(t)
	brief := func(o *Options) { o.KeepMoved = time.Second }
	a := c.start("a", "x", t.TempDir(), brief)
	c.waitMap("", "", "", "")
	c.until("it is ready without shards", func() bool { return a.Status().Readiness.IsReady() })
	c.want("a", "a", "a", "a")
	c.waitMap("a", "a", "a", "a")
	client := c.client()
	c.until("all are served", func() bool { return len(a.service.Collections()) == shards })
	require.NoError(t, client.WaitReady(soon(t)))
	c.readAll(client)

	b := c.start("b", "x", t.TempDir(), nil)
	b.setSlow(true)
	c.want("a", "b", "a", "a")
	c.waitMap("a", "ab", "a", "a") // moving
	c.until("it is here", func() bool { return b.shardStates()[1] == Fetching })
	require.Empty(t, b.service.Collections(), "a shard is not served before it is ready")
	require.True(t, b.Status().Readiness.IsReady(), "a move does not make a server unready")
	c.readAll(client)
	b.setSlow(false)
	c.waitMap("a", "b", "a", "a")
	require.Equal(t, Serving, b.shardStates()[1])
	c.readAll(client)
	c.until("the moved shard is removed", func() bool { return len(a.Status().Shards) == 3 && len(a.service.Collections()) == 3 })
	c.until("its files are removed", func() bool {
		_, err := os.Stat(filepath.Join(a.dir, "shard-0001"))
		return errors.Is(err, os.ErrNotExist)
	})
	c.readAll(client)
	states, err := c.store.States(soon(t))
	require.NoError(t, err)
	require.Len(t, states, 2)
	require.Equal(t, placement.ShardState{Shard: 1, Ready: true, Bytes: 11, Fetched: 11, Manifest: 1, Target: 1}, states[1].Shards[0])
}

// A shard that moves back while it is kept is served all the time.
func TestMoveBack(t *testing.T) {
	c := newCluster(t).create()
	a := c.start("a", "x", t.TempDir(), nil)
	c.want("a", "a", "a", "a")
	c.waitMap("a", "a", "a", "a")
	b := c.start("b", "x", t.TempDir(), nil)
	c.want("b", "a", "a", "a")
	c.waitMap("b", "a", "a", "a")
	c.until("it has moved", func() bool { return a.shardStates()[0] == Moved })
	require.Len(t, a.service.Collections(), shards)
	c.want("a", "a", "a", "a")
	c.waitMap("a", "a", "a", "a")
	c.until("it is back", func() bool { return a.shardStates()[0] == Serving && b.shardStates()[0] == Moved })
	c.readAll(c.client())
}

// A server that restarts without etcd serves its shards from its last map, and has its row
// again afterwards.
func TestRestartWithoutEtcd(t *testing.T) {
	c := newCluster(t).create()
	dir := t.TempDir()
	a := c.start("a", "x", dir, nil)
	c.want("a", "a", "a", "a")
	c.waitMap("a", "a", "a", "a")
	c.until("all are served", func() bool { return len(a.service.Collections()) == shards })
	require.NoError(t, a.Close())
	c.etcd.Kill()
	again := c.start(Auto, "x", dir, func(o *Options) { o.Server.Address = a.options.Server.Address })
	c.until("all are served", func() bool { return len(again.service.Collections()) == shards && again.Status().Readiness.IsReady() })
	require.Equal(t, "a", again.Name(), "the column is known")
	require.Equal(t, -1, again.Status().Row)
	c.etcd.Restart(t)
	c.until("the row is held", func() bool { return again.Status().Row == 0 })
	c.until("it is live", func() bool {
		states, err := c.store.States(soon(t))
		return err == nil && len(states) == 1 && len(states[0].Shards) == shards
	})
}

// While it is not ready, a restarted server answers "unavailable" for its shards: the other
// rows answer. Clients do not see it.
func TestRestartedServerIsNotReady(t *testing.T) {
	c := newCluster(t).create()
	dir := t.TempDir()
	a := c.start("a", "x", dir, nil)
	c.want("a", "a", "a", "a")
	c.waitMap("a", "a", "a", "a")
	c.until("all are served", func() bool { return len(a.service.Collections()) == shards })
	require.NoError(t, a.Close())
	again := c.start("a", "x", dir, func(o *Options) {
		open := o.Open
		o.Open = func(layout queueshard.Layout, i int, dir string, serve func(*collection.Collection)) (Follower, error) {
			f, err := open(layout, i, dir, serve)
			if err == nil {
				f.(*fake).s.setSlow(true)
			}
			return f, err
		}
	})
	require.Contains(t, again.Status().Readiness.Cause, "4 of 4 shards are not ready; shard 0: it is slow")
	request := []byte("\x0a\x04jobs\x12\x05doc-1")
	get := func() docservicepb.Status {
		body, err := again.service.Handle(t.Context(), docservice.MethodGet, request, nil)
		require.NoError(t, err)
		var response docservicepb.GetResponse
		require.NoError(t, proto.Unmarshal(body, &response))
		return response.GetStatus()
	}
	require.Equal(t, docservicepb.Status_STATUS_UNAVAILABLE, get())
	again.setSlow(false)
	c.until("it is ready", func() bool { return again.Status().Readiness.IsReady() })
	require.Equal(t, docservicepb.Status_STATUS_FOUND, get())
}

// A server that leaves keeps its shards, and follows no more changes: a shard that its column
// receives now has moved, for its clients.
func TestLeavingServerFollowsNoChanges(t *testing.T) {
	c := newCluster(t).create()
	a := c.start("a", "x", t.TempDir(), nil)
	c.want("a", "a", "a", "")
	c.waitMap("a", "a", "a", "")
	c.until("three are served", func() bool { return len(a.service.Collections()) == 3 })
	a.Leave()
	m, _ := a.options.Store.Map()
	later := *m
	later.Epoch++
	later.Shards = []placement.Place{{Column: "b"}, {Column: "a"}, {Column: "a"}, {Column: "a"}}
	a.options.Store.Set(&later)
	time.Sleep(3 * tick)
	require.Equal(t, map[int]State{0: Serving, 1: Serving, 2: Serving}, a.shardStates())
	for id := range c.documents {
		response, err := a.service.Handle(t.Context(), docservice.MethodGet, fmt.Appendf(nil, "\x0a\x04jobs\x12%c%s", len(id), id), nil)
		require.NoError(t, err)
		var answer docservicepb.GetResponse
		require.NoError(t, proto.Unmarshal(response, &answer))
		want := docservicepb.Status_STATUS_FOUND
		if c.layout.ShardString(id) == 3 {
			want = docservicepb.Status_STATUS_MOVED
		}
		require.Equal(t, want, answer.GetStatus())
	}
}

// slowShard is a follower that is not ready while slow is set.
type slowShard struct {
	Follower
	slow *atomic.Bool
}

func (s slowShard) Status() follow.Status {
	if s.slow.Load() {
		return follow.Status{Target: 1, Files: readiness.Report{State: readiness.Fetching, Cause: "it is late"}}
	}
	return s.Follower.Status()
}

// A shard that the column receives while a server starts is served before the server is ready.
func TestShardThatComesWhileAServerStarts(t *testing.T) {
	c := newCluster(t).create()
	a := c.start("a", "x", t.TempDir(), nil)
	c.want("a", "a", "a", "")
	c.waitMap("a", "a", "a", "")
	var late atomic.Bool
	late.Store(true)
	b := c.start("a", "y", t.TempDir(), func(o *Options) {
		open := o.Open
		o.Open = func(layout queueshard.Layout, i int, dir string, serve func(*collection.Collection)) (Follower, error) {
			f, err := open(layout, i, dir, serve)
			if err == nil && i == 0 {
				f.(*fake).s.setSlow(true)
			}
			if err == nil && i == 3 {
				f = slowShard{f, &late}
			}
			return f, err
		}
	})
	c.until("it waits for a shard", func() bool { return strings.Contains(b.Status().Readiness.Cause, "shard 0: it is slow") })
	m, _ := a.options.Store.Map()
	later := *m
	later.Epoch += 10
	later.Shards = []placement.Place{{Column: "a"}, {Column: "a"}, {Column: "a"}, {Column: "a"}}
	b.options.Store.Set(&later)
	c.until("it fetches the shard", func() bool { return b.shardStates()[3] == Fetching })
	b.setSlow(false)
	c.until("it serves the others", func() bool {
		states := b.shardStates()
		return states[0] == Serving && states[1] == Serving && states[2] == Serving
	})
	require.Contains(t, b.Status().Readiness.Cause, "shard 3: it is late")
	late.Store(false)
	c.until("it is ready", func() bool { return b.Status().Readiness.IsReady() })
	require.Equal(t, Serving, b.shardStates()[3])
}

// Servers with the column "auto" fill the columns evenly, in the rows of their zones.
func TestAuto(t *testing.T) {
	c := newCluster(t).create()
	early := c.start(Auto, "z0", t.TempDir(), nil)
	c.start("a", "z0", t.TempDir(), nil)
	c.until("the first column exists", func() bool { return early.Status().Column == "a" || early.Name() == "a" })
	c.start("b", "z0", t.TempDir(), nil)
	c.until("b is live", func() bool {
		states, err := c.store.States(soon(t))
		return err == nil && len(states) == 3
	})
	var all []*server
	for i := range 3 {
		all = append(all, c.start(Auto, fmt.Sprint("z", i), t.TempDir(), nil))
	}
	c.until("all have a row", func() bool {
		states, err := c.store.States(soon(t))
		return err == nil && len(states) == 6
	})
	count := map[string]int{early.Name(): 1}
	for _, s := range all {
		count[s.Name()]++
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2}, count, "with one of each by name")
}

// A map that is wrong makes no id "not found" and removes nothing: the servers keep what they
// have, and clients find it.
func TestWrongMap(t *testing.T) {
	c := newCluster(t).create()
	a := c.start("a", "x", t.TempDir(), nil)
	b := c.start("b", "x", t.TempDir(), nil)
	c.want("a", "a", "b", "b")
	c.waitMap("a", "a", "b", "b")
	client := c.client()
	c.until("all are served", func() bool { return len(a.service.Collections()) == 2 && len(b.service.Collections()) == 2 })
	c.readAll(client)
	m, _ := c.store.Map()
	wrong := *m
	wrong.Shards = []placement.Place{{Column: "b"}, {Column: "nobody"}, {Column: "a", Previous: "b"}, {}}
	wrong.Epoch += 10
	source := new(placement.Current)
	source.Set(&wrong)
	lost, err := sharded.NewClient(source, "jobs", etcdclient.ClientOptions(c.store, &etcdclient.Options{}))
	require.NoError(t, err)
	defer func() { require.NoError(t, lost.Close()) }()
	for i := range 20 {
		id := fmt.Sprint("doc-", i)
		want := c.documents[id]
		ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
		document, err := lost.Get(ctx, nil, id)
		cancel()
		if err == nil {
			require.Equal(t, want, string(document))
		}
		require.NotErrorIs(t, err, docservice.ErrNotFound)
	}
	// The servers follow it, too. The one that places would write it to etcd, and the leader would
	// leave the lead to a server with a later map, so its epoch is that of the right map.
	sameEpoch := wrong
	sameEpoch.Epoch = m.Epoch
	leader, err := c.store.Leader(soon(t))
	require.NoError(t, err)
	misled, before := a, 0
	if leader == a.options.Server.Address {
		misled, before = b, 2
	}
	misled.options.Store.Set(&sameEpoch)
	c.until("its shard is no longer assigned", func() bool { return misled.shardStates()[before] == Moved })
	c.readAll(client)
}

func TestFailures(t *testing.T) {
	c := newCluster(t).create()
	var mu sync.Mutex
	broken := errors.New("the disk is broken")
	a := c.start("a", "x", t.TempDir(), func(o *Options) {
		open := o.Open
		o.Open = func(layout queueshard.Layout, i int, dir string, serve func(*collection.Collection)) (Follower, error) {
			mu.Lock()
			defer mu.Unlock()
			if broken != nil && i == 2 {
				return nil, broken
			}
			return open(layout, i, dir, serve)
		}
	})
	c.want("a", "a", "a", "a")
	c.until("the shard fails", func() bool { return a.shardStates()[2] == Failed })
	mu.Lock()
	broken = nil
	mu.Unlock()
	c.until("it is tried again", func() bool { return a.shardStates()[2] == Serving })
	other := *mustMap(t, a.options.Store)
	other.Layout.Shards *= 2
	other.Shards = make([]placement.Place, other.Layout.Shards)
	a.options.Store.Set(&other)
	c.until("another layout needs a restart", func() bool { return !a.Status().Readiness.IsReady() })
	require.Len(t, a.service.Collections(), shards, "the shards stay served")
}

func mustMap(t *testing.T, s *etcdmap.Store) *placement.Map {
	m, _ := s.Map()
	require.NotNil(t, m)
	return m
}

func TestBadOptions(t *testing.T) {
	_, err := Open(Options{})
	require.ErrorContains(t, err, `column ""`)
	require.ErrorContains(t, err, "an option is missing")
	_, err = Open(Options{Column: "a/b", Rejoin: -1, KeepMoved: MaxKeepMoved + 1})
	require.ErrorContains(t, err, `column "a/b"`)
	require.ErrorContains(t, err, "Rejoin")
	require.ErrorContains(t, err, "KeepMoved")
}

// state is a Follower with a constant state.
type state struct{ now follow.Status }

func (s state) Status() follow.Status { return s.now }
func (s state) Close() error          { return nil }

// TestShardWithoutIncrementsIsBehind: the target of a shard includes the increments.
func TestShardWithoutIncrementsIsBehind(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: false, behindTime / 2: false, behindTime: true} {
		s := follow.Status{Served: 3, Target: 3, Increment: 5}
		if age > 0 {
			s.Behind = time.Now().Add(-age)
		}
		one := new(Column).statusOf(&held{follower: state{s}})
		require.Equal(t, want, one.Behind, age)
	}
}
