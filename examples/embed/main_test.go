package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"

	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/placement/fleet"
	"docstore/docservice/server"
	"docstore/docservice/server/bucketsource"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const documents = 200

// collectionDir returns the directory of a collection with documents doc-0, doc-1, ...
func collectionDir(t *testing.T, shards int) string {
	t.Helper()
	dir, layout := t.TempDir(), shard.Layout{Shards: shards}
	w, err := shardset.Open(dir, &shardset.Options{Layout: layout})
	require.NoError(t, err)
	for i := range documents {
		require.NoError(t, w.Put(queue.Record{ID: fmt.Appendf(nil, "doc-%d", i), Document: fmt.Appendf(nil, `{"n":%d}`, i)}))
	}
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	return dir
}

// published publishes a collection in a directory, which stands for an object store, and
// returns its URL.
func published(t *testing.T, dir string) string {
	t.Helper()
	link := "file://" + t.TempDir()
	b, err := bucket.Open(t.Context(), link, bucket.Options{})
	require.NoError(t, err)
	p, err := publish.OpenPublisher(t.Context(), b, dir, nil)
	require.NoError(t, err)
	_, err = p.Publish(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Close())
	_, ref, err := publish.FindManifest(t.Context(), b, 0, time.Now)
	require.NoError(t, err)
	log, err := publish.OpenLog(t.Context(), b, time.Now)
	require.NoError(t, err)
	_, err = log.Update(t.Context(), func(r publish.Record) (publish.Record, error) {
		r, err := r.Validate(ref)
		if err != nil {
			return r, err
		}
		return r.Announce(ref)
	})
	require.NoError(t, err)
	return link
}

// start starts a server on free ports until the end of the test.
func start(t *testing.T, source string, o bucketsource.Options) *server.Server {
	t.Helper()
	o.Downloads, o.Weight = 4, 1
	o.Rejoin, o.KeepMoved = time.Minute, time.Minute
	s, err := server.Start(server.Options{
		Collections: []server.Collection{{Name: "jobs", Source: source}},
		DataDir:     filepath.Join(t.TempDir(), "data"),
		Boxcar:      "127.0.0.1:0",
		HTTP:        server.HTTP{Address: "127.0.0.1:0"},
		Memory:      64 << 20,
		Source:      bucketsource.New(o),
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Stop(time.Second)) })
	return s
}

// get returns the status and the body of a path.
func get(t *testing.T, s *server.Server, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(s.HTTPURL(s.HTTPAddress()) + path)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// requireAll waits until a server is ready, and gets each document from it.
func requireAll(t *testing.T, s *server.Server) {
	t.Helper()
	require.Eventually(t, s.Ready, time.Minute, 10*time.Millisecond)
	for i := range documents {
		code, body := get(t, s, fmt.Sprintf("/documents/jobs/doc-%d", i))
		require.Equal(t, http.StatusOK, code, body)
		require.Equal(t, fmt.Sprintf(`{"n":%d}`, i), body)
	}
	code, _ := get(t, s, "/documents/jobs/none")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = get(t, s, "/readyz")
	require.Equal(t, http.StatusOK, code)
	_, metrics := get(t, s, "/metrics")
	require.Contains(t, metrics, `docstore_fetch_seconds_count{listener="http",method="Get"}`)
}

func TestDirectory(t *testing.T) {
	requireAll(t, start(t, collectionDir(t, 1), bucketsource.Options{}))
}

func TestBucket(t *testing.T) {
	requireAll(t, start(t, published(t, collectionDir(t, 1)), bucketsource.Options{}))
}

// Two servers, each the only replica of a replica set, hold some of the shards each and answer
// for all.
func TestReplicaSets(t *testing.T) {
	etcd := startEtcd(t)
	link := published(t, collectionDir(t, 4))
	servers := map[string]*server.Server{}
	for _, set := range []string{"a", "b"} {
		servers[set] = start(t, link, bucketsource.Options{Etcd: etcd, Column: set})
	}
	store, err := etcdmap.Open(etcd, "jobs", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	// The first server may have taken all four shards. Then one moves: a replica set may have up to a
	// shard more than its share.
	require.Eventually(t, func() bool {
		_, err := fleet.Apply(t.Context(), store, "")
		a, b := len(servers["a"].Collections()), len(servers["b"].Collections())
		return err == nil && a > 0 && b > 0 && a+b >= 4
	}, time.Minute, 100*time.Millisecond)
	for _, s := range servers {
		requireAll(t, s)
	}
}

// startEtcd runs etcd in this process, and returns its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	config := embed.NewConfig()
	config.Dir, config.UnsafeNoFsync, config.LogLevel = dir, true, "fatal"
	config.TickMs, config.ElectionMs = 20, 200 // otherwise the shortest lease is 2 s
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{free}, []url.URL{free}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		require.Fail(t, "etcd is not ready")
	}
	return etcd.Clients[0].Addr().String()
}

func TestUsage(t *testing.T) {
	require.ErrorContains(t, run(context.Background(), nil), "give the directories")
	require.ErrorContains(t, run(context.Background(), []string{filepath.Join(t.TempDir(), "none"), t.TempDir()}), "none")
}
