package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	discovery "docstore/boxcarrpc/discovery/etcd"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/etcd"
	"docstore/internal/simulate/network"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

const address = "10.0.3.1:2379"

// fixture is an etcd with a client.
type fixture struct {
	*testing.T
	network *network.Network
	server  *etcd.Server
	process *network.Process
	client  *clientv3.Client
	own     *network.Process // of the client
}

func run(t *testing.T, f func(*fixture)) {
	virtualtime.Test(t, func(t *testing.T) {
		x := &fixture{T: t, network: network.New(chance.New(testseed.Seed(t))), server: etcd.New()}
		x.start()
		x.own = x.network.Host("10.0.0.1", "a").Boot()
		x.client = x.connect(x.own)
		f(x)
		require.NoError(t, x.client.Close())
		x.stop()
		time.Sleep(time.Second) // goroutines end
	})
}

func (x *fixture) start() {
	x.process = x.network.Host("10.0.3.1", "a").Boot()
	l, err := x.process.Listen(address)
	require.NoError(x, err)
	go x.server.Serve(l)
}

func (x *fixture) stop() {
	x.server.Stop()
	x.process.Kill()
}

func (x *fixture) connect(p *network.Process) *clientv3.Client {
	x.Helper()
	client, err := discovery.Connect("etcd://"+address+"/p", &discovery.Options{Dial: p.Dial})
	require.NoError(x, err)
	return client
}

func TestKeysAndTransactions(t *testing.T) {
	run(t, func(x *fixture) {
		ctx := x.Context()
		for i := range 3 {
			answer, err := x.client.Put(ctx, fmt.Sprint("a/", i), "v")
			require.NoError(x, err)
			require.EqualValues(x, 2+i, answer.Header.Revision)
		}
		got, err := x.client.Get(ctx, "a/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2))
		require.NoError(x, err)
		require.Len(x, got.Kvs, 2)
		require.Equal(x, "a/2", string(got.Kvs[0].Key))
		require.True(x, got.More)
		for _, succeeds := range []bool{true, false} {
			answer, err := x.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("b"), "=", 0)).
				Then(clientv3.OpPut("b", "1"), clientv3.OpDelete("a/0")).Else(clientv3.OpGet("b")).Commit()
			require.NoError(x, err)
			require.Equal(x, succeeds, answer.Succeeded)
			require.EqualValues(x, 5, answer.Header.Revision)
		}
		got, err = x.client.Get(ctx, "a/0", clientv3.WithRev(4))
		require.NoError(x, err)
		require.Len(x, got.Kvs, 1)
		got, err = x.client.Get(ctx, "a/0")
		require.NoError(x, err)
		require.Empty(x, got.Kvs)
		require.Equal(x, []string{"a/1", "a/2"}, x.server.Keys("a/"))
	})
}

// A watch delivers all events from its revision on, those of a transaction together, also over
// restarts of etcd; after a compaction it ends.
func TestWatches(t *testing.T) {
	run(t, func(x *fixture) {
		ctx, cancel := context.WithCancel(x.Context())
		defer cancel()
		_, err := x.client.Put(ctx, "k/0", "early")
		require.NoError(x, err)
		watch := x.client.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithRev(2))
		answer := <-watch
		require.Len(x, answer.Events, 1)
		_, err = x.client.Txn(ctx).Then(clientv3.OpPut("k/1", "1"), clientv3.OpPut("k/2", "2"), clientv3.OpDelete("k/0")).Commit()
		require.NoError(x, err)
		answer = <-watch
		require.Len(x, answer.Events, 3)
		x.stop()
		x.start()
		time.Sleep(time.Minute) // the client connects again
		_, err = x.client.Put(ctx, "k/3", "3")
		require.NoError(x, err)
		answer = <-watch
		require.Len(x, answer.Events, 1)
		x.server.Compact()
		old := x.client.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithRev(2))
		answer = <-old
		require.EqualValues(x, 4, answer.CompactRevision)
		require.Error(x, answer.Err())
	})
}

// A lease ends when its client is cut off, and its keys with it; while etcd is stopped none ends.
func TestLeases(t *testing.T) {
	run(t, func(x *fixture) {
		ctx := x.Context()
		lease, err := x.client.Grant(ctx, 10)
		require.NoError(x, err)
		alive, err := x.client.KeepAlive(ctx, lease.ID)
		require.NoError(x, err)
		go func() {
			for range alive {
			}
		}()
		_, err = x.client.Put(ctx, "owner", "me", clientv3.WithLease(lease.ID))
		require.NoError(x, err)
		time.Sleep(time.Hour)
		require.Len(x, x.server.Keys("owner"), 1)
		x.stop()
		time.Sleep(5 * time.Second) // after its time to live the client gives up
		x.start()
		require.Len(x, x.server.Keys("owner"), 1)
		time.Sleep(time.Minute)
		require.Len(x, x.server.Keys("owner"), 1)
		heal := x.network.Host("10.0.0.1", "a").Isolate()
		time.Sleep(11 * time.Second)
		require.Empty(x, x.server.Keys("owner"))
		heal()
	})
}

func TestElection(t *testing.T) {
	run(t, func(x *fixture) {
		ctx := x.Context()
		var elections []*concurrency.Election
		var sessions []*concurrency.Session
		for range 2 {
			session, err := concurrency.NewSession(x.client, concurrency.WithTTL(5))
			require.NoError(x, err)
			sessions = append(sessions, session)
			elections = append(elections, concurrency.NewElection(session, "leader"))
		}
		require.NoError(x, elections[0].Campaign(ctx, "first"))
		elected := make(chan error)
		go func() { elected <- elections[1].Campaign(ctx, "second") }()
		time.Sleep(time.Second)
		require.NoError(x, elections[0].Resign(ctx))
		require.NoError(x, <-elected)
		for _, s := range sessions {
			require.NoError(x, s.Close())
		}
	})
}

func TestRestore(t *testing.T) {
	run(t, func(x *fixture) {
		ctx := x.Context()
		_, err := x.client.Put(ctx, "k", "1")
		require.NoError(x, err)
		backup := x.server.Backup()
		_, err = x.client.Put(ctx, "k", "2")
		require.NoError(x, err)
		for want, from := range map[string]etcd.Snapshot{"1": backup, "": {}} {
			x.stop()
			x.server.Restore(from)
			x.start()
			time.Sleep(time.Minute) // the client connects again
			got, err := x.client.Get(ctx, "k")
			require.NoError(x, err)
			if want == "" {
				require.Empty(x, got.Kvs)
				continue
			}
			require.Equal(x, want, string(got.Kvs[0].Value))
		}
	})
}
