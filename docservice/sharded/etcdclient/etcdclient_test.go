package etcdclient_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/docservice"
	"docstore/docservice/placement"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A client finds the servers of each column in etcd, follows moves to a new column, and
// continues without etcd.
func TestClient(t *testing.T) {
	c := shardtest.New(t, 4, 100)
	client, err := etcdclient.Open(c.Etcd.Address, shardtest.Collection, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	c.Even("a", "b")
	require.NoError(t, client.WaitReady(shardtest.Context(t)))
	all := func() {
		t.Helper()
		require.NoError(t, client.GetMany(shardtest.Context(t), c.IDs, func(i int, document []byte, err error) error {
			require.NoError(t, err)
			require.Equal(t, c.Documents[c.IDs[i]], string(document))
			return nil
		}))
		_, err := client.Get(shardtest.Context(t), nil, "none")
		require.ErrorIs(t, err, docservice.ErrNotFound)
	}
	all()
	second := c.Start("c", "")
	c.Want("a", "b", "c", "b")
	second.Hold(2)
	c.Wait(func(m *placement.Map) bool { return m.Shards[2].Column == "c" })
	all()
	c.Etcd.Kill()
	all()
	c.Etcd.Restart(t) // so that the servers leave at once
}

// A program that has a Dir starts while etcd is away, with the last placement and servers, and
// follows etcd when it is back.
func TestStartWithoutEtcd(t *testing.T) {
	c := shardtest.New(t, 4, 100)
	c.Even("a", "b")
	dir := filepath.Join(t.TempDir(), "cache", "jobs")
	all := func(client *etcdclient.Client) {
		t.Helper()
		require.NoError(t, client.WaitReady(shardtest.Context(t)))
		require.NoError(t, client.GetMany(shardtest.Context(t), c.IDs, func(i int, document []byte, err error) error {
			require.NoError(t, err)
			require.Equal(t, c.Documents[c.IDs[i]], string(document))
			return nil
		}))
	}
	open := func() *etcdclient.Client {
		t.Helper()
		client, err := etcdclient.Open(c.Etcd.Address, shardtest.Collection, &etcdclient.Options{Dir: dir})
		require.NoError(t, err)
		return client
	}
	first := open()
	all(first)
	require.NoError(t, first.Close())
	c.Etcd.Kill()
	client := open()
	defer func() { require.NoError(t, client.Close()) }()
	all(client)
	c.Etcd.Restart(t)
	second := c.Start("c", "")
	c.Want("a", "b", "c", "b")
	second.Hold(2)
	moved := c.Wait(func(m *placement.Map) bool { return m.Shards[2].Column == "c" })
	require.NoError(t, client.Store().Refresh(shardtest.Context(t), moved.Epoch-1))
	all(client)
	require.Equal(t, moved, client.Placement())

	// A damaged file is not used.
	dir = t.TempDir() // no other client writes the file
	require.NoError(t, os.WriteFile(filepath.Join(dir, "placement.json"), []byte("{"), 0o600))
	third := open()
	defer func() { require.NoError(t, third.Close()) }()
	all(third)
	_, err := etcdclient.Open(c.Etcd.Address, shardtest.Collection, &etcdclient.Options{Dir: filepath.Join(dir, "placement.json")})
	require.Error(t, err)
}

// Columns that hold no shard any more have no servers; the client does not wait for them.
func TestReadyWithoutServersOfRemovedColumns(t *testing.T) {
	c := shardtest.New(t, 2, 10)
	servers := c.Even("a", "b")
	servers["a"].Hold(1)
	c.Want("a", "a")
	c.Wait(func(m *placement.Map) bool { return m.Shards[1].Column == "a" })
	servers["b"].Stop()
	client, err := etcdclient.Open(c.Etcd.Address, shardtest.Collection, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	require.NoError(t, client.WaitReady(shardtest.Context(t)))
}

func TestOpenRefuses(t *testing.T) {
	for _, x := range []struct{ endpoints, collection string }{{"", "jobs"}, {"127.0.0.1:1", ""}, {"127.0.0.1:1", "a/b"}, {"http://a:1/b", "jobs"}} {
		_, err := etcdclient.Open(x.endpoints, x.collection, nil)
		require.Error(t, err, x)
	}
}

func ExampleOpen() {
	client, err := etcdclient.Open("127.0.0.1:2379", "jobs", nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Close())
	// Output: <nil>
}
