package follow_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/testseed"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"

	"github.com/stretchr/testify/require"
)

// TestWrongLayoutIsNotServed: a follower of a queue does not serve shards, and the reverse. It
// continues to serve what it has.
func TestWrongLayoutIsNotServed(t *testing.T) {
	one, four, eight := newFleet(t), newShardedFleet(t), newShardedFleet(t)
	eight.layout.Shards = 8
	for _, test := range []struct {
		name   string
		fleet  *fleet
		layout shard.Layout // of the generation that follows
		want   string
	}{
		{"several shards", one, four.layout, "start docserviced with --column"},
		{"one shard", four, one.layout, "start docserviced without --column"},
		{"more shards", eight, four.layout, "manifest 2 has 4 shards with the seed 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := test.fleet
			f.publishEntries(false, nil, [2]string{"id-0", "first"}, [2]string{"id-1", "second"})
			f.announce(1)
			s := f.startServer("", "server")
			s.waitFor(1)
			before := f.layout
			f.queueName, f.layout = "other", test.layout
			f.publishEntries(false, &publish.Options{NewGeneration: true}, [2]string{"id-0", "other"})
			f.announce(2)
			f.layout = before
			s.eventually(func(s follow.Status) bool { return s.Error != "" })
			require.Contains(t, s.follower.Status().Error, follow.ErrLayout.Error())
			require.Contains(t, s.follower.Status().Error, test.want)
			s.waitFor(1)
			// A server that starts now has nothing to serve.
			fresh := f.startServer("", "fresh")
			fresh.eventually(func(s follow.Status) bool { return strings.Contains(s.Error, test.want) })
			_, err := fresh.get("id-0")
			require.ErrorIs(t, err, docservice.ErrUnavailable)
			require.False(t, fresh.follower.Status().Files.IsReady())
		})
	}
}

// TestServedBetweenReads: a collection that was ready between two reads of the record is served
// though the second names a manifest that cannot be.
func TestServedBetweenReads(t *testing.T) {
	f := newFleet(t)
	f.publishEntries(false, nil, [2]string{"id-0", "first"})
	f.announce(1)
	f.queueName, f.layout = "other", shard.Layout{Shards: 4, Seed: 3}
	f.publishEntries(false, &publish.Options{NewGeneration: true}, [2]string{"id-0", "other"})
	f.layout = shard.Layout{Shards: 1}
	counting := &countingBucket{Bucket: f.bucket.Bucket}
	f.bucket.Bucket = counting
	f.options.PollInterval = time.Second
	// Some of them are ready after the first pass of their followers has ended.
	servers := make([]*server, 8)
	for i := range servers {
		servers[i] = f.startServer("", fmt.Sprint("server-", i))
	}
	serves := func(s *server) bool { // without Status, which records that the collection is ready
		documents, ok := s.read()
		return ok && maps.Equal(documents, f.states[1])
	}
	for _, s := range servers {
		require.Eventually(t, func() bool { return serves(s) }, 20*time.Second, time.Millisecond)
	}
	f.announce(2)
	counting.manifests.Store(0)
	require.Eventually(t, func() bool { return counting.manifests.Load() >= int64(len(servers)) }, 20*time.Second, time.Millisecond)
	for _, s := range servers {
		s.eventually(func(s follow.Status) bool { return s.Error != "" })
		require.True(t, serves(s))
		require.True(t, s.follower.Status().Files.IsReady())
	}
}

// TestShardsOfAnotherGeneration with the same layout replace those of the one before.
func TestShardsOfAnotherGeneration(t *testing.T) {
	f := newShardedFleet(t)
	f.publishEntries(false, nil, [2]string{"id-0", "first"}, [2]string{"id-1", "first"})
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	f.queueName, f.documents = "other", map[string]string{}
	f.publishEntries(false, &publish.Options{NewGeneration: true}, [2]string{"id-1", "second"}, [2]string{"id-2", "second"})
	f.announce(2)
	s.waitFor(2)
	f.rollback(1)
	s.waitFor(1)
}

func TestShardMustExist(t *testing.T) {
	feed := follow.OpenFeed(newFleet(t).bucket, nil)
	defer feed.Close()
	for _, s := range []follow.Shard{
		{Layout: shard.Layout{Shards: 4}}, {Feed: feed}, {Feed: feed, Layout: shard.Layout{Shards: 3}},
		{Feed: feed, Layout: shard.Layout{Shards: 4}, Number: 4}, {Feed: feed, Layout: shard.Layout{Shards: 4}, Number: -1},
	} {
		_, err := follow.Open("jobs/0", nil, t.TempDir(), nil, &follow.Options{Shard: &s})
		require.Error(t, err)
	}
}

// countingBucket counts the requests that are not for files.
type countingBucket struct {
	bucket.Bucket
	requests, manifests atomic.Int64
}

func (b *countingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	switch {
	case strings.HasPrefix(name, "manifest/"):
		b.manifests.Add(1)
	case !strings.HasPrefix(name, "file/"):
		b.requests.Add(1)
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

// TestShardsShareOneReader: 16 shards read each manifest once, and the record as often as one
// shard does.
func TestShardsShareOneReader(t *testing.T) {
	rng, f := testseed.Rand(t), newShardedFleet(t)
	f.layout.Shards = 16
	counting := &countingBucket{Bucket: f.bucket.Bucket}
	f.bucket.Bucket = counting
	f.publish(rng, false)
	f.announce(1)
	counting.manifests.Store(0)
	s := f.startServer("", "server")
	s.waitFor(1)
	require.EqualValues(t, 1, counting.manifests.Load())
	require.NoError(t, s.close())
	counting.requests.Store(0)
	const interval = 100 * time.Millisecond
	began := time.Now()
	feed := follow.OpenFeed(counting, &follow.FeedOptions{PollInterval: interval})
	announced, _, err := feed.Announced(t.Context())
	require.NoError(t, err)
	require.Equal(t, f.layout, announced.Layout)
	var followers []*follow.Follower
	for i := range f.layout.Shards {
		follower, err := follow.Open(shard.Name("jobs", i), counting, s.fleet.layout.Dir(s.dir, i), collection.NewService().Replace,
			&follow.Options{PollInterval: interval, Shard: &follow.Shard{Feed: feed, Layout: f.layout, Number: i}})
		require.NoError(t, err)
		followers = append(followers, follower)
	}
	for _, follower := range followers {
		require.Eventually(t, func() bool { return follower.Status().LastContact.After(began) }, 10*time.Second, time.Millisecond)
	}
	require.Eventually(t, func() bool { return counting.requests.Load() >= 10 }, 10*time.Second, time.Millisecond)
	for _, follower := range followers {
		require.NoError(t, follower.Close())
	}
	feed.Close()
	// OpenLog needs few requests, and each poll one.
	most := int64(time.Since(began)/(interval/2)) + 20
	require.LessOrEqual(t, counting.requests.Load(), most)
}

// TestDamagedFileOfAShardIsFetchedAgain, and only that one.
func TestDamagedFileOfAShardIsFetchedAgain(t *testing.T) {
	f := newShardedFleet(t)
	var entries [][2]string
	for _, id := range []string{"id-0", "id-1", "id-2", "id-3", "id-4"} {
		entries = append(entries, [2]string{id, strings.Repeat(id, 100)})
	}
	f.publishEntries(false, nil, entries...)
	f.announce(1)
	f.options.Collection.VerifyInterval, f.options.Collection.QuarantineAfter = 2*time.Millisecond, 2*time.Millisecond
	s := f.startServer("", "server")
	s.waitFor(1)
	damaged := f.layout.ShardString("id-0")
	files := f.bucket.files.Load()
	path := filepath.Join(s.followers[damaged].FilesDir(), "0000000001.seg")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	flipped := append([]byte(nil), content...)
	flipped[len(flipped)/2] ^= 1
	require.NoError(t, os.WriteFile(path, flipped, 0o600))
	require.Eventually(t, func() bool {
		now, err := os.ReadFile(path)
		return err == nil && string(now) == string(content)
	}, 20*time.Second, time.Millisecond)
	s.waitFor(1)
	require.Equal(t, files+1, f.bucket.files.Load())
}

// TestFeedWithoutTheBucket: followers that start while the bucket is down serve what they
// have, and a Feed recovers.
func TestFeedWithoutTheBucket(t *testing.T) {
	rng, f := testseed.Rand(t), newShardedFleet(t)
	f.publish(rng, false)
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	f.bucket.down.Store(true)
	s.restart()
	s.waitFor(1)
	s.eventually(func(s follow.Status) bool { return s.Error != "" && s.Files.IsReady() })
	f.publish(rng, false)
	f.announce(2)
	f.bucket.down.Store(false)
	s.waitFor(2)
	s.eventually(func(s follow.Status) bool { return s.Error == "" })
}

// TestFeedOfAnEmptyBucket: Announced says why there is none.
func TestFeedOfAnEmptyBucket(t *testing.T) {
	f := newFleet(t)
	feed := follow.OpenFeed(f.bucket, nil)
	defer feed.Close()
	_, _, err := feed.Announced(t.Context())
	require.ErrorIs(t, err, publish.ErrRefused)
	f.publishEntries(false, nil, [2]string{"id-0", "document"})
	f.announce(1)
	require.Eventually(t, func() bool {
		m, _, err := feed.Announced(t.Context())
		return err == nil && m.Number == 1
	}, 10*time.Second, time.Millisecond)
}
