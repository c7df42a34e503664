//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/etcdtest"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
	"docstore/queue/shard"
)

// shardServer follows all shards of a published collection in this process.
type shardServer struct {
	service   *collection.Service
	layout    shard.Layout
	followers []*follow.Follower
}

func (p *published) followShards(t *testing.T, etcd string) *shardServer {
	t.Helper()
	t.Setenv("AWS_REGION", "us-east-1")
	client, err := bucket.Open(t.Context(), p.url, bucket.Options{Endpoint: p.s3.flags[1], PathStyle: true})
	require.NoError(t, err)
	arbiter, err := etcdlog.Open(etcd, nil)
	require.NoError(t, err)
	feed := follow.OpenFeed(publish.WithArbiter(client, arbiter), nil)
	announced, _, err := feed.Announced(t.Context())
	require.NoError(t, err)
	s := &shardServer{service: collection.NewService(), layout: announced.Layout}
	s.service.Divide("debian", s.layout)
	dir := t.TempDir()
	for i := range s.layout.Shards {
		f, err := follow.Open(shard.Name("debian", i), client, s.layout.Dir(dir, i), s.service.Replace,
			&follow.Options{Shard: &follow.Shard{Feed: feed, Layout: s.layout, Number: i}})
		require.NoError(t, err)
		s.followers = append(s.followers, f)
	}
	t.Cleanup(func() {
		for _, f := range s.followers {
			require.NoError(t, f.Close())
		}
		feed.Close()
		require.NoError(t, arbiter.Close())
		client.CloseIdle()
	})
	return s
}

// waitFor waits until all shards serve a manifest, with these documents.
func (s *shardServer) waitFor(t *testing.T, number uint64, want map[string][]byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, f := range s.followers {
			if status := f.Status(); status.Served != number || !status.Files.IsReady() {
				return false
			}
		}
		return s.wrong(want) == ""
	}, time.Minute, 20*time.Millisecond, "manifest %d: %s", number, s.wrong(want))
}

// wrong returns an id with another answer.
func (s *shardServer) wrong(want map[string][]byte) string {
	collections := map[string]*collection.Collection{}
	for _, c := range s.service.Collections() {
		collections[c.Name()] = c
	}
	for id, line := range want {
		document, err := collections[shard.Name("debian", s.layout.ShardString(id))].Get(nil, []byte(id))
		if line == nil && errors.Is(err, docservice.ErrNotFound) {
			continue
		}
		if err != nil || !bytes.Equal(document, line) {
			return id
		}
	}
	return ""
}

// TestShardsThroughS3AndEtcd appends with --shards and --publish, announces, rolls back and
// reverts. Damage of an object is found, and the commits survive the loss of etcd.
func TestShardsThroughS3AndEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPublished(t, startS3(t), "--etcd", etcd.Address)
	p.queue = filepath.Join(t.TempDir(), "queue")
	ingest := func(documents []document) {
		t.Helper()
		flags := append([]string{"append", "--queue", p.queue, "--shards", "4", "--publish", p.url, "--segment-size", "256KiB", "--quiet"}, p.flags...)
		start(t, strings.NewReader(string(ndjson(documents))), "docstore-updater", flags...).WaitExit(t)
	}
	newest := func() uint64 {
		client, err := bucket.Open(t.Context(), p.url, bucket.Options{Endpoint: p.s3.flags[1], PathStyle: true})
		require.NoError(t, err)
		defer client.CloseIdle()
		log, err := publish.OpenLog(t.Context(), client, time.Now)
		require.NoError(t, err)
		record, err := log.Load(t.Context())
		require.NoError(t, err)
		return record.Head.Number
	}
	documents := corpus(t)[:2_000]
	before, after := expected(documents), expected(documents)
	ingest(documents)
	p.release(t)
	first := newest()
	s := p.followShards(t, etcd.Address)
	s.waitFor(t, first, before)

	ingest(change(documents, after))
	p.release(t)
	s.waitFor(t, newest(), after)
	p.updater(t, "rollback", "--to", fmt.Sprint(first), "--reason", "test")
	s.waitFor(t, first, before)
	p.updater(t, "revert", "--queue", p.queue, "--to", fmt.Sprint(first))
	p.release(t)
	s.waitFor(t, newest(), before)

	object := p.s3.objects(t, "debian/file")[0]
	flipByte(t, object, fileSize(t, object)/2)
	verify := append([]string{"manifests", "--verify"}, p.flags...)
	require.Contains(t, p.refuses(t, verify...), "1 damaged object")
	flipByte(t, object, fileSize(t, object)/2)

	etcd.Lose(t)
	p.updater(t, "restore")
	ingest(change(documents, after))
	p.release(t)
	s.waitFor(t, newest(), after)
	p.updater(t, "manifests", "--verify")
}
