package etcdmap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"docstore/docservice/placement"
	"docstore/internal/etcdtest"
	"docstore/queue/shard"
)

const patience = 2 * time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t testing.TB, server *etcdtest.Server, opts *Options) *Store {
	t.Helper()
	o := Options{Lease: time.Second}
	if opts != nil {
		o.File = opts.File
	}
	s, err := Open(server.Address, "jobs", &o)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func newMap(generation string, shards int) *placement.Map {
	layout := shard.Layout{Shards: shards}
	if shards > 1 {
		layout.Seed = 5
	}
	return &placement.Map{Collection: "jobs", Generation: generation, Epoch: 1, Layout: layout, Shards: make([]placement.Place, shards)}
}

// waitMap waits for a map of the store.
func waitMap(t testing.TB, s *Store, wanted func(*placement.Map) bool) *placement.Map {
	t.Helper()
	ctx := soon(t)
	for {
		m, changed := s.Map()
		if m != nil && wanted(m) {
			return m
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(t, "the map does not arrive", "%+v", m)
		}
	}
}

// place runs a placer until the returned function is called.
func place(s *Store, name string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Place(ctx, name, func() []int64 { return nil }) })
	return func() {
		cancel()
		running.Wait()
	}
}

// state returns the state of a server that is ready for the shards.
func state(column string, row int, ready ...int) placement.ServerState {
	one := placement.ServerState{Address: fmt.Sprintf("10.0.%s.%d:7070", column, row), Column: column, Row: row, Limit: 1 << 30}
	for _, i := range ready {
		one.Shards = append(one.Shards, placement.ShardState{Shard: i, Ready: true, Bytes: 10, Fetched: 10})
		one.Used += 10
	}
	return one
}

// following returns the state of a server that follows each map.
func following(one placement.ServerState) placement.ServerState {
	one.Epoch = math.MaxUint64
	return one
}

func want(t testing.TB, s *Store, columns ...string) {
	t.Helper()
	require.NoError(t, s.UpdateControl(soon(t), func(c *placement.Control) error {
		c.Wanted = columns
		return nil
	}))
}

func TestCreate(t *testing.T) {
	s := open(t, etcdtest.Start(t), nil)
	require.NoError(t, s.Create(soon(t), newMap("g1", 4), false))
	require.NoError(t, s.Create(soon(t), newMap("g1", 4), false), "again")
	require.ErrorContains(t, s.Create(soon(t), newMap("g2", 8), false), "another generation")
	waitMap(t, s, func(m *placement.Map) bool { return m.Generation == "g1" })
	require.NoError(t, s.Create(soon(t), newMap("g2", 8), true))
	waitMap(t, s, func(m *placement.Map) bool { return m.Generation == "g2" && len(m.Shards) == 8 })

	bad := newMap("g3", 4)
	bad.Shards = nil
	require.ErrorContains(t, s.Create(soon(t), bad, true), "assignments of 0 shards")
	other := newMap("g3", 4)
	other.Collection = "other"
	require.Error(t, s.Create(soon(t), other, true))
	for _, name := range []string{"", "a/b"} {
		_, err := Open("127.0.0.1:1", name, nil)
		require.Error(t, err)
	}
}

// A move is prepared, and completed when all live servers of the new column are ready.
func TestMove(t *testing.T) {
	server := etcdtest.Start(t)
	s := open(t, server, nil)
	watcher := open(t, server, nil)
	require.NoError(t, s.Create(soon(t), newMap("g", 2), false))
	defer place(s, "placer")()
	a := s.Report(following(state("a", 0, 0, 1)))
	defer a.Close()
	b := s.Report(following(state("b", 0)))
	defer b.Close()
	b1 := s.Report(following(state("b", 1)))
	want(t, s, "a", "a")
	waitMap(t, watcher, func(m *placement.Map) bool { return m.Shards[0].Column == "a" && m.Shards[1].Column == "a" })
	want(t, s, "a", "b")
	waitMap(t, watcher, func(m *placement.Map) bool { return m.Shards[1].Next == "b" })
	b.Set(following(state("b", 0, 1))) // one of two
	time.Sleep(3 * stepInterval)
	m, _ := watcher.Map()
	require.Equal(t, placement.Place{Column: "a", Next: "b"}, m.Shards[1])
	require.NoError(t, b1.Close()) // the other one is not live any more
	m = waitMap(t, watcher, func(m *placement.Map) bool { return m.Shards[1].Next == "" })
	require.Equal(t, placement.Place{Column: "b", Previous: "a"}, m.Shards[1])
	require.Equal(t, placement.Place{Column: "a"}, m.Shards[0])
	leader, err := s.Leader(soon(t))
	require.NoError(t, err)
	require.Equal(t, "placer", leader)
}

// While etcd is away the last map stays in use, also after a restart, and nothing moves.
func TestWithoutEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	file := filepath.Join(t.TempDir(), "placement.json")
	s := open(t, server, &Options{File: file})
	require.NoError(t, s.Create(soon(t), newMap("g", 2), false))
	stop := place(s, "placer")
	defer stop()
	a := s.Report(following(state("a", 0, 0, 1)))
	defer a.Close()
	want(t, s, "a", "a")
	before := waitMap(t, s, func(m *placement.Map) bool { return m.Shards[1].Column == "a" })

	server.Kill()
	require.Error(t, s.Refresh(soon(t), before.Epoch))
	m, _ := s.Map()
	require.Same(t, before, m)
	restarted, err := Open(server.Address, "jobs", &Options{File: file, Timeout: time.Second})
	require.NoError(t, err)
	defer restarted.Close()
	m, _ = restarted.Map()
	require.Equal(t, before, m)
	_, err = restarted.States(soon(t))
	require.Error(t, err)

	server.Restart(t)
	b := s.Report(following(state("b", 0, 1)))
	defer b.Close()
	want(t, s, "a", "b")
	waitMap(t, restarted, func(m *placement.Map) bool { return m.Shards[1].Column == "b" })
	waitMap(t, s, func(m *placement.Map) bool { return m.Shards[1].Column == "b" })

	// A file of another collection is refused with its name.
	file = filepath.Join(t.TempDir(), "other.json") // no other store writes it
	require.NoError(t, os.WriteFile(file, sealed([]byte(`{"collection":"other"}`)), 0o600))
	_, err = Open(server.Address, "jobs", &Options{File: file})
	require.ErrorContains(t, err, file)
	require.ErrorContains(t, err, `"other"`)
}

// The map of a file is used only as it was written, whatever bit has changed. A file of an earlier
// build, without a checksum, is used, and such a build reads the files of this one.
func TestDamagedFile(t *testing.T) {
	s := &Store{collection: "jobs"}
	want := newMap("g", 2)
	content, err := json.Marshal(want)
	require.NoError(t, err)
	file := sealed(append(content, '\n'))
	read := func(file []byte) (*placement.Map, error) {
		content, err := unsealed(file)
		if err != nil {
			return nil, err
		}
		return s.parse(content)
	}
	for _, intact := range [][]byte{file, content} {
		got, err := read(intact)
		require.NoError(t, err)
		require.Equal(t, want, got)
		got, err = s.parse(intact)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	refused := 0
	for i := range 8 * len(file) {
		damaged := bytes.Clone(file)
		damaged[i/8] ^= 1 << (i % 8)
		if got, err := read(damaged); err == nil { // the name of the checksum has changed
			require.Equal(t, want, got, "bit %d", i)
		} else {
			refused++
		}
	}
	require.Greater(t, refused, 8*len(content))
	for n := range file {
		_, err := read(file[:n])
		require.Error(t, err, "%d bytes", n)
	}
	name := filepath.Join(t.TempDir(), "placement.json")
	require.NoError(t, os.WriteFile(name, file[:len(file)-1], 0o600))
	opened, err := Open("127.0.0.1:1", "jobs", &Options{File: name})
	require.NoError(t, err)
	defer opened.Close()
	m, _ := opened.Map()
	require.Nil(t, m)
}

// The map of etcd replaces one of a file with the same epoch and other columns, or a server would
// not find the servers of a shard while others do.
func TestSameEpoch(t *testing.T) {
	server := etcdtest.Start(t)
	m := newMap("g", 2)
	require.NoError(t, open(t, server, nil).Create(soon(t), m, false))
	other := *m
	other.Shards = []placement.Place{{Column: "a"}, {Column: "c"}}
	content, err := json.Marshal(other)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "placement.json")
	require.NoError(t, os.WriteFile(file, sealed(content), 0o600))
	s := open(t, server, &Options{File: file})
	require.Equal(t, m, waitMap(t, s, func(now *placement.Map) bool { return now.Shards[1].Column != "c" }))
}

// etcd is restored from a backup that has the lease of a server's state, and neither the state nor the
// last maps. The state is written again, and later maps are seen.
func TestRestoredEtcd(t *testing.T) {
	dir := t.TempDir()
	server := etcdtest.StartIn(t, dir)
	s := open(t, server, nil)
	require.NoError(t, s.Create(soon(t), newMap("g", 2), false))
	a := s.Report(state("a", 0))
	defer a.Close()
	states := func(ready int) {
		t.Helper()
		require.Eventually(t, func() bool {
			all, err := s.States(soon(t))
			return err == nil && len(all) == 1 && len(all[0].Shards) == ready
		}, patience, 10*time.Millisecond)
	}
	states(0)
	server.Kill()
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.CopyFS(backup, os.DirFS(dir)))
	server.Restart(t)
	a.Set(state("a", 0, 0, 1))
	states(2)
	for i := range 20 { // revisions that are lost
		require.NoError(t, s.Create(soon(t), newMap(fmt.Sprint("g", i), 2), true))
	}

	server.Kill()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))
	server.Restart(t)
	states(2)
	require.NoError(t, open(t, server, nil).Create(soon(t), newMap("h", 2), true))
	waitMap(t, s, func(m *placement.Map) bool { return m.Generation == "h" })
}

// etcd is restored from a backup that has neither the leader nor the placer that waits for its turn, and
// the leader is gone. The other one leads, although it never sees the leader leave.
func TestTurnInARestoredEtcd(t *testing.T) {
	dir := t.TempDir()
	server := etcdtest.StartIn(t, dir)
	s, gone := open(t, server, nil), open(t, server, nil)
	require.NoError(t, s.Create(soon(t), newMap("g", 2), false))
	server.Kill()
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.CopyFS(backup, os.DirFS(dir)))
	server.Restart(t)
	leads := func(name string) {
		t.Helper()
		require.Eventually(t, func() bool {
			leader, err := s.Leader(soon(t))
			return err == nil && leader == name
		}, patience, 10*time.Millisecond)
	}
	stop := place(gone, "gone")
	leads("gone")
	for i := range 20 { // revisions that are lost
		require.NoError(t, s.Create(soon(t), newMap(fmt.Sprint("g", i), 2), true))
	}
	defer place(s, "waits")()
	require.Eventually(t, func() bool {
		response, err := s.client.Get(soon(t), s.leaderKey()+"/", clientv3.WithPrefix())
		return err == nil && len(response.Kvs) == 2
	}, patience, 10*time.Millisecond)

	server.Kill()
	stop()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))
	server.Restart(t)
	leads("waits")
}

// etcd has an earlier map than the placer has seen, as after a restoration from a backup. The placer
// writes the last one again, with a later epoch.
func TestPlacerWithAnEarlierMap(t *testing.T) {
	server := etcdtest.Start(t)
	s, other := open(t, server, nil), open(t, server, nil)
	first := newMap("g", 2)
	require.NoError(t, s.Create(soon(t), first, false))
	later := *first
	later.Epoch, later.Shards = 5, []placement.Place{{Column: "a"}, {Column: "b"}}
	put := func(m *placement.Map) {
		content, err := json.Marshal(m)
		require.NoError(t, err)
		_, err = s.client.Put(soon(t), s.mapKey(), string(content))
		require.NoError(t, err)
	}
	put(&later)
	for _, store := range []*Store{s, other} {
		waitMap(t, store, func(m *placement.Map) bool { return m.Epoch == 5 })
	}
	put(first)
	defer place(s, "placer")()
	m := waitMap(t, other, func(m *placement.Map) bool { return m.Epoch > 5 })
	require.Equal(t, later.Shards, m.Shards)
}

// The leader was started after a restoration of etcd from a backup, so it knows the earlier map only. It
// leaves the lead to the placer that knows the last map, which its server reports.
func TestLeaderWithoutTheLastMap(t *testing.T) {
	server := etcdtest.Start(t)
	s := open(t, server, nil)
	later := newMap("g", 2)
	later.Epoch, later.Shards = 5, []placement.Place{{Column: "a"}, {Column: "b"}}
	require.NoError(t, s.Create(soon(t), later, false))
	waitMap(t, s, func(m *placement.Map) bool { return m.Epoch == 5 })
	content, err := json.Marshal(newMap("g", 2))
	require.NoError(t, err)
	_, err = s.client.Put(soon(t), s.mapKey(), string(content))
	require.NoError(t, err)

	fresh := open(t, server, nil)
	waitMap(t, fresh, func(m *placement.Map) bool { return m.Epoch == 1 })
	defer place(fresh, "fresh")()
	require.Eventually(t, func() bool {
		leader, err := fresh.Leader(soon(t))
		return err == nil && leader == "fresh"
	}, patience, 5*time.Millisecond)
	another := state("c", 0)
	another.Generation, another.Epoch = "f", 9
	defer func(r *Reporter) { require.NoError(t, r.Close()) }(fresh.Report(another))
	want(t, fresh, "c", "c")
	waitMap(t, fresh, func(m *placement.Map) bool { return m.Shards[0].Column == "c" })

	one := state("a", 0)
	one.Generation, one.Epoch = later.Generation, later.Epoch
	defer func(r *Reporter) { require.NoError(t, r.Close()) }(s.Report(one))
	defer place(s, "knows")()
	m := waitMap(t, fresh, func(m *placement.Map) bool { return m.Epoch > 5 })
	require.Equal(t, later.Shards, m.Shards)
}

// Two placers never write concurrently: each epoch is written once, also when one is stopped.
func TestTwoPlacers(t *testing.T) {
	server := etcdtest.Start(t)
	s := open(t, server, nil)
	require.NoError(t, s.Create(soon(t), newMap("g", 4), false))
	for _, name := range []string{"a", "b"} {
		r := s.Report(following(state(name, 0, 0, 1, 2, 3)))
		defer r.Close()
	}
	want(t, s, "a", "a", "a", "a")
	epochs := make(chan uint64, 1000)
	ctx, cancel := context.WithCancel(soon(t))
	var watching sync.WaitGroup
	watching.Go(func() {
		for response := range s.client.Watch(ctx, s.mapKey()) {
			for _, event := range response.Events {
				m, err := s.parse(event.Kv.Value)
				if assert.NoError(t, err) {
					epochs <- m.Epoch
				}
			}
		}
	})
	stops := []func(){place(open(t, server, nil), "one"), place(open(t, server, nil), "two")}
	for round := range 4 {
		column := []string{"b", "a"}[round%2]
		waitMap(t, s, func(m *placement.Map) bool { return m.Shards[3].Column != "" && m.Shards[3].Next == "" })
		want(t, s, column, column, column, column)
		stops[round%2]()
		stops[round%2] = place(open(t, server, nil), fmt.Sprint("placer ", round))
		waitMap(t, s, func(m *placement.Map) bool {
			for _, p := range m.Shards {
				if p.Column != column || p.Next != "" {
					return false
				}
			}
			return true
		})
	}
	for _, stop := range stops {
		stop()
	}
	cancel()
	watching.Wait()
	close(epochs)
	last := uint64(1)
	for epoch := range epochs {
		require.Equal(t, last+1, epoch, "each epoch is written once, in order")
		last = epoch
	}
	require.Greater(t, last, uint64(4))
}

// A placer that has lost its election cannot write, although it does not know.
func TestDeposedPlacerCannotWrite(t *testing.T) {
	server := etcdtest.Start(t)
	s := open(t, server, nil)
	require.NoError(t, s.Create(soon(t), newMap("g", 1), false))
	r := s.Report(following(state("a", 0, 0)))
	defer r.Close()
	want(t, s, "a")
	session, election := campaign(t, s)
	require.NoError(t, session.Close())
	require.ErrorIs(t, (&placer{store: s, election: election}).step(soon(t), func() []int64 { return nil }), errNotLeader)
	_, election = campaign(t, s)
	p := &placer{store: s, election: election}
	require.NoError(t, p.keepSizes(soon(t), "g", []int64{0}), "the sizes are not known yet")
	require.NoError(t, p.step(soon(t), func() []int64 { return []int64{77} }))
	m := waitMap(t, s, func(m *placement.Map) bool { return m.Shards[0].Column == "a" })

	// The sizes of shards that no server has are those of the placer.
	sizes, err := s.Sizes(soon(t), m, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{77}, sizes)
	sizes, err = s.Sizes(soon(t), newMap("another", 1), []placement.ServerState{state("a", 0, 0)})
	require.NoError(t, err)
	require.Equal(t, []int64{10}, sizes)
}

func campaign(t testing.TB, s *Store) (*concurrency.Session, *concurrency.Election) {
	session, err := concurrency.NewSession(s.client, concurrency.WithTTL(1))
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	election := concurrency.NewElection(session, s.leaderKey())
	require.NoError(t, election.Campaign(soon(t), "test"))
	return session, election
}

// TestLeaveWithoutEtcd: an elected placer, one that waits for the election, and one that waits
// for the mutex of Exclusive end although etcd does not answer.
func TestLeaveWithoutEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	options := &Options{Timeout: 200 * time.Millisecond, Lease: time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	var placing sync.WaitGroup
	stores := []*Store{open(t, server, options), open(t, server, options), open(t, server, options), open(t, server, options)}
	for _, s := range stores[:2] {
		placing.Go(func() { s.Place(ctx, "p", func() []int64 { return nil }) })
	}
	locked := make(chan struct{})
	placing.Go(func() {
		_ = stores[2].Exclusive(ctx, func(ctx context.Context) error {
			close(locked)
			<-ctx.Done()
			return ctx.Err()
		})
	})
	<-locked
	placing.Go(func() { _ = stores[3].Exclusive(ctx, func(context.Context) error { return nil }) })
	for _, prefix := range []string{stores[0].leaderKey(), stores[3].prefix + "placement/lock"} {
		require.Eventually(t, func() bool {
			answer, err := stores[0].client.Get(t.Context(), prefix+"/", clientv3.WithPrefix())
			return err == nil && len(answer.Kvs) == 2 // one holds it and one waits
		}, 10*time.Second, 10*time.Millisecond)
	}
	server.Kill()
	cancel()
	ended := make(chan struct{})
	go func() {
		placing.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("a placer waits for etcd")
	}
}
