package docserviced

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/cmd/internal/cli"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/readiness"
	"docstore/docservice/server"
	"docstore/docservice/server/livepage"
	"docstore/internal/etcdtest"
	"docstore/internal/servertest"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

func TestServeRefusesBadColumns(t *testing.T) {
	url := "jobs=file://" + t.TempDir()
	for want, flags := range map[string][]string{
		`--zone: zone "a/b": use only`:      {"--collection", url, "--zone", "a/b"},
		"--column needs --etcd":             {"--collection", url, "--column", "a"},
		`--column: column "a/b"`:            {"--collection", url, "--etcd", "127.0.0.1:1", "--column", "a/b"},
		"give the URL where the collection": {"--collection", "jobs=" + t.TempDir(), "--etcd", "127.0.0.1:1", "--column", "a"},
		"leave out --discovery":             {"--collection", url, "--etcd", "127.0.0.1:1", "--column", "a", "--discovery", "etcd://127.0.0.1:1/x"},
		"--rejoin 0s: must be more than 0":  {"--collection", url, "--etcd", "127.0.0.1:1", "--column", "a", "--rejoin", "0s"},
		"--keep-moved 721h0m0s: must be":    {"--collection", url, "--etcd", "127.0.0.1:1", "--column", "a", "--keep-moved", "721h"},
		"--zone: zone of 65 bytes: must":    {"--collection", url, "--etcd", "127.0.0.1:1", "--column", "a", "--zone", strings.Repeat("z", 65)},
		"--peers-ca and --peers-token-file": {"--collection", url, "--peers-ca", "x"},
	} {
		r := run(t.Context(), append([]string{"serve", "--data", t.TempDir()}, flags...)...)
		require.Equal(t, cli.ExitUsage, r.status, r.stderr)
		require.Contains(t, r.stderr, want)
	}
}

// shardedFixture is a collection of shards in a bucket, with an etcd.
type shardedFixture struct {
	t     *testing.T
	etcd  *etcdtest.Server
	url   string
	store *etcdmap.Store

	collector string // URL of a collector of traces; empty: none
}

func newShardedFixture(t *testing.T, documents int) *shardedFixture {
	t.Helper()
	dir := t.TempDir()
	f := &shardedFixture{t: t, etcd: etcdtest.Start(t), url: "file://" + filepath.Join(dir, "bucket")}
	w, err := shardset.Open(filepath.Join(dir, "queue"), &shardset.Options{Layout: shard.Layout{Shards: 4, Seed: 1}})
	require.NoError(t, err)
	for i := range documents {
		require.NoError(t, w.Put(queue.Record{ID: fmt.Appendf(nil, "d-%d", i), Document: fmt.Appendf(nil, `{"n":%d}`, i)}))
	}
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	publishQueue(t, f.etcd, f.url, filepath.Join(dir, "queue"))
	f.store, err = etcdmap.Open(f.etcd.Address, "jobs", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.store.Close()) })
	require.NoError(t, f.store.Create(t.Context(), &placement.Map{
		Collection: "jobs", Generation: "g", Epoch: 1, Layout: shard.Layout{Shards: 4, Seed: 1}, Shards: make([]placement.Place, 4),
	}, false))
	return f
}

// publishQueue publishes a queue and announces it, with commits in etcd.
func publishQueue(t *testing.T, etcd *etcdtest.Server, url, dir string) {
	t.Helper()
	opened, err := bucket.Open(t.Context(), url, bucket.Options{})
	require.NoError(t, err)
	arbiter, err := etcdlog.Open(etcd.Address, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, arbiter.Close()) }()
	b := publish.WithArbiter(opened, arbiter)
	p, err := publish.OpenPublisher(t.Context(), b, dir, nil)
	require.NoError(t, err)
	_, err = p.Publish(t.Context())
	require.NoError(t, err)
	m, ref, err := publish.FindManifest(t.Context(), b, 0, time.Now)
	require.NoError(t, err)
	require.NotNil(t, m)
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
}

func (f *shardedFixture) start(column string) *process {
	d, _ := startTestDaemon(f.t, f.options(column))
	return d
}

func (f *shardedFixture) options(column string) serveOptions {
	o := testOptions(f.t, "")
	o.Collections = []server.Collection{{Name: "jobs", Source: f.url}}
	o.source.Etcd, o.source.Downloads = f.etcd.Address, 4
	o.registration.zone = "z"
	o.source.Column, o.source.Rejoin, o.source.KeepMoved = column, time.Minute, time.Minute
	o.registration.weight = 1
	o.grpc = "127.0.0.1:0"
	o.tracing.url = f.collector
	return o
}

func (f *shardedFixture) eventually(what string, condition func() bool) {
	f.t.Helper()
	require.Eventually(f.t, condition, time.Minute, 10*time.Millisecond, what)
}

// Daemons of two columns serve a collection: each answers over HTTP for all shards,
// reports its own, and is found by clients below its column.
func TestServeColumns(t *testing.T) {
	f := newShardedFixture(t, 100)
	a, b := f.start("a"), f.start("b")
	require.NoError(t, f.store.UpdateControl(t.Context(), func(c *placement.Control) error {
		c.Wanted = []string{"a", "b", "b", "a"}
		return nil
	}))
	ready := func(d *process) bool { return servertest.Get(d.HTTPHandler(), "/readyz").Code == http.StatusOK }
	f.eventually("the shards are served", func() bool {
		return len(a.Collections()) == 2 && len(b.Collections()) == 2 && ready(a) && ready(b)
	})
	for _, d := range []*process{a, b} {
		var response *httptest.ResponseRecorder
		for i := range 100 {
			// The pool of the other column may not know its server yet.
			f.eventually("the document is served", func() bool {
				response = servertest.Get(d.HTTPHandler(), fmt.Sprintf("/documents/jobs/d-%d", i))
				return response.Code == http.StatusOK
			})
			require.Equal(t, fmt.Sprintf(`{"n":%d}`, i), response.Body.String())
		}
		require.Equal(t, http.StatusNotFound, servertest.Get(d.HTTPHandler(), "/documents/jobs/none").Code)
		require.Equal(t, "{\"count\":100}\n", servertest.Get(d.HTTPHandler(), "/collections/jobs/count").Body.String())
		export, err := http.Get("http://" + d.HTTPAddress() + "/collections/jobs/export")
		require.NoError(t, err)
		lines, err := io.ReadAll(export.Body)
		require.NoError(t, errors.Join(err, export.Body.Close()))
		require.Equal(t, 100, bytes.Count(lines, []byte("\n")))
		require.Contains(t, servertest.Get(d.HTTPHandler(), "/collections/jobs/ids?limit=2").Body.String(), `{"ids":["d-0","d-1"],"next":`)
		require.Contains(t, servertest.Get(d.HTTPHandler(), "/collections").Body.String(), `{"collections":[{"name":"jobs","ready":true,`)
		metrics := servertest.Get(d.HTTPHandler(), "/metrics").Body.String()
		require.Contains(t, metrics, "docstore_collection_ready{collection=\"jobs\"} 1\n")
		require.Equal(t, 3, strings.Count(metrics, "docstore_collection_ready{"), "the collection and two shards")
		require.Contains(t, metrics, `docstore_shards{collection="jobs",state="serving"} 2`)
		require.Contains(t, metrics, `docstore_placement_moves{collection="jobs"} 0`)
		require.Contains(t, metrics, `docstore_column_row{collection="jobs",column="`)
		require.Equal(t, 1, strings.Count(metrics, `docstore_bucket_requests_total{collection="jobs",operation="get"}`))
	}
	r := a.State()
	status := r.Status().Columns[0]
	isReady := readiness.Report{State: readiness.Ready}
	require.Equal(t, livepage.Column{
		Collection: "jobs", Column: "a", Zone: "z", Report: isReady, Readiness: livepage.ReadinessOf(isReady), Epoch: status.Epoch, Serving: 2, UsedBytes: status.UsedBytes, LimitBytes: status.LimitBytes,
	}, status)
	all, samples := r.Status(), r.Sample().Collections
	require.Len(t, all.Shards, 2)
	require.Len(t, all.Collections, 1, "one for all shards")
	require.Equal(t, "jobs", all.Collections[0].Name)
	require.Equal(t, all.Shards[0].Queue.Documents+all.Shards[1].Queue.Documents, all.Collections[0].Queue.Documents)
	require.Len(t, samples, 1)
	require.Equal(t, "jobs", samples[0].Name)
	require.GreaterOrEqual(t, samples[0].Found, all.Collections[0].Gets.Found)
	require.Positive(t, samples[0].Found)
	require.True(t, r.LookUp(t.Context(), "jobs", idOfShard(0), false).Found)
	require.Contains(t, r.LookUp(t.Context(), "jobs", idOfShard(1), false).Problem, "shard 1 of column b")
	require.Equal(t, "No such collection.", r.LookUp(t.Context(), "none", "x", false).Problem)
	registry, err := f.store.Column("a")
	require.NoError(t, err)
	first := make(chan discovery.Snapshot, 10)
	go func() { _ = registry.Source(nil).Watch(t.Context(), func(s discovery.Snapshot) { first <- s }) }()
	require.Equal(t, []discovery.Server{{Number: 0, Address: a.BoxcarAddress(), Weight: 1, Zone: "z"}}, (<-first).Servers)
	states, err := f.store.States(t.Context())
	require.NoError(t, err)
	require.Len(t, states, 2)
	require.Equal(t, "http://"+a.HTTPAddress(), states[0].Page)
	require.Positive(t, states[0].Limit)
	require.Equal(t, []string{"jobs/shard-0000", "jobs/shard-0003"}, mustIndexes(t, a.DataDir()))
}

// A daemon that starts while etcd is away serves its shards and passes on requests for those of
// other columns, to their last servers.
func TestColumnStartsWithoutEtcd(t *testing.T) {
	f := newShardedFixture(t, 100)
	f.start("b")
	require.NoError(t, f.store.UpdateControl(t.Context(), func(c *placement.Control) error {
		c.Wanted = []string{"a", "b", "b", "a"}
		return nil
	}))
	o := f.options("a")
	run := func(then func()) {
		var log servertest.Buffer
		env := &cli.Env{Stdout: &log, Stderr: &log, Now: time.Now}
		env.Log = env.NewLogger(slog.LevelInfo)
		d, err := startProcess(env, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Stop(time.Second)) }()
		for i := range 100 {
			f.eventually("the document is served", func() bool {
				response := servertest.Get(d.HTTPHandler(), fmt.Sprintf("/documents/jobs/d-%d", i))
				return response.Code == http.StatusOK && response.Body.String() == fmt.Sprintf(`{"n":%d}`, i)
			})
		}
		then()
	}
	run(f.etcd.Kill)
	run(func() { f.etcd.Restart(t) })
}

func mustIndexes(t *testing.T, dir string) []string {
	names, err := listIndexes(dir)
	require.NoError(t, err)
	return names
}

// idOfShard returns an id of the fixture in a shard.
func idOfShard(i int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprintf("d-%d", n); (shard.Layout{Shards: 4, Seed: 1}).ShardString(id) == i {
			return id
		}
	}
}

// A daemon takes requests over Boxcar when its shards are ready, and none when it ends.
func TestStartingColumnIsDrained(t *testing.T) {
	f := newShardedFixture(t, 10)
	f.etcd.Kill()
	d := f.start("a")
	require.True(t, d.Boxcar().Stats().Draining, "the placement is not known")
	f.etcd.Restart(t)
	f.eventually("it is ready", func() bool { return !d.Boxcar().Stats().Draining })
	require.Equal(t, http.StatusOK, servertest.Get(d.HTTPHandler(), "/readyz").Code)
	d.Drain()
	require.True(t, d.Boxcar().Stats().Draining)
	require.Equal(t, http.StatusServiceUnavailable, servertest.Get(d.HTTPHandler(), "/readyz").Code)
}

// A collection of one shard is refused with --column.
func TestColumnOfCollectionOfOneShard(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, filepath.Join(dir, "queue"), "a", `{"id":"a"}`)
	w, err := queue.OpenWriter(filepath.Join(dir, "queue"), nil)
	require.NoError(t, err)
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	url := "file://" + filepath.Join(dir, "bucket")
	etcd := etcdtest.Start(t)
	publishQueue(t, etcd, url, filepath.Join(dir, "queue"))
	r := run(t.Context(), "serve", "--collection", "jobs="+url, "--data", filepath.Join(dir, "data"), "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--etcd", etcd.Address, "--column", "a", "--quiet")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.stderr, "collection jobs has one shard; leave out --column")
}
