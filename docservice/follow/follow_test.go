package follow_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"
	"docstore/queue/publish"
	"docstore/queue/shard"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ids = 12

// fleet is a queue, a bucket that it is published to, and the documents of each manifest.
type fleet struct {
	t         *testing.T
	dir       string
	bucket    *flakyBucket
	log       *publish.Log
	documents map[string]string
	states    map[uint64]map[string]string
	newest    uint64
	queueName string
	layout    shard.Layout
	options   follow.Options // of servers that are started
}

// flakyBucket fails all requests while it is down.
type flakyBucket struct {
	bucket.Bucket
	down  atomic.Bool
	files atomic.Int64  // requests for files
	bytes atomic.Int64  // of files that were requested
	gate  chan struct{} // a request for a file waits for a value; nil: none does
}

func newFleet(t *testing.T) *fleet {
	dir := t.TempDir()
	b, err := bucket.OpenDir(vfs.OS, filepath.Join(dir, "bucket"))
	require.NoError(t, err)
	log, err := publish.OpenLog(t.Context(), b, time.Now)
	require.NoError(t, err)
	return &fleet{
		t: t, dir: dir, bucket: &flakyBucket{Bucket: b}, log: log,
		documents: map[string]string{}, states: map[uint64]map[string]string{0: {}}, queueName: "queue", layout: shard.Layout{Shards: 1},
	}
}

// newShardedFleet is newFleet of a collection with four shards.
func newShardedFleet(t *testing.T) *fleet {
	f := newFleet(t)
	f.layout = shard.Layout{Shards: 4, Seed: 3}
	return f
}

// queues returns the directories of the queue, or of its shards.
func (f *fleet) queues() []string {
	require.NoError(f.t, shard.Write(vfs.OS, f.queue(), f.layout))
	dirs := make([]string, f.layout.Shards)
	for i := range dirs {
		dirs[i] = f.layout.Dir(f.queue(), i)
	}
	return dirs
}

func (f *fleet) queue() string { return filepath.Join(f.dir, f.queueName) }

// publish appends random entries and publishes them.
func (f *fleet) publish(rng *rand.Rand, compact bool) {
	f.t.Helper()
	var entries [][2]string
	for range 1 + rng.IntN(10) {
		entry := [2]string{fmt.Sprint("id-", rng.IntN(ids))}
		if rng.IntN(4) > 0 {
			entry[1] = fmt.Sprint(rng.Uint64())
		}
		entries = append(entries, entry)
	}
	f.publishEntries(compact, nil, entries...)
}

// publishEntries appends ids with documents, or deletes if they are empty, and publishes them.
func (f *fleet) publishEntries(compact bool, opts *publish.Options, entries ...[2]string) {
	f.t.Helper()
	var writers []*queue.Writer
	for _, dir := range f.queues() {
		w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: "none", SegmentBytes: queue.MinSegmentBytes})
		require.NoError(f.t, err)
		writers = append(writers, w)
	}
	for _, e := range entries {
		id, document := e[0], e[1]
		w := writers[f.layout.ShardString(id)]
		var err error
		if document == "" {
			_, err = w.Delete([]byte(id))
			delete(f.documents, id)
		} else {
			_, err = w.Append([]byte(id), []byte(document))
			f.documents[id] = document
		}
		require.NoError(f.t, err)
	}
	for _, w := range writers {
		require.NoError(f.t, w.Seal())
		require.NoError(f.t, w.Close())
	}
	if compact {
		for _, dir := range f.queues() {
			_, err := maintain.Compact(f.t.Context(), dir, &maintain.CompactOptions{MaxDead: 0.1, DeleteOriginals: true})
			require.NoError(f.t, err)
		}
	}
	p, err := publish.OpenPublisher(f.t.Context(), f.bucket.Bucket, f.queue(), opts)
	require.NoError(f.t, err)
	defer p.Close()
	published, err := p.Publish(f.t.Context())
	require.NoError(f.t, err)
	f.newest = published.Ref.Number
	f.states[f.newest] = maps.Clone(f.documents)
}

// change applies an operation to the record; a refusal is allowed.
func (f *fleet) change(number uint64, operation func(publish.Record, publish.Ref) (publish.Record, error)) {
	f.t.Helper()
	var ref publish.Ref
	if number > 0 {
		var err error
		_, ref, err = publish.FindManifest(f.t.Context(), f.bucket.Bucket, number, time.Now)
		require.NoError(f.t, err)
	}
	_, err := f.log.Update(f.t.Context(), func(r publish.Record) (publish.Record, error) { return operation(r, ref) })
	if err != nil {
		require.ErrorIs(f.t, err, publish.ErrRefused)
	}
}

func (f *fleet) announce(number uint64) {
	f.change(number, publish.Record.Validate)
	f.change(number, publish.Record.Announce)
}

func (f *fleet) pin(number uint64, group string) {
	f.change(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
		return r.Pin(publish.Pin{Group: group, To: ref})
	})
}

func (f *fleet) unpin(group string) {
	f.change(0, func(r publish.Record, _ publish.Ref) (publish.Record, error) { return r.Unpin(group, true) })
}

func (f *fleet) rollback(number uint64) {
	f.change(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
		return r.Rollback(publish.Pin{To: ref})
	})
}

// server serves the collection of a fleet, or all its shards.
type server struct {
	fleet     *fleet
	group     string
	dir       string
	service   *collection.Service
	feed      *follow.Feed // nil: one shard
	followers []*follow.Follower
	follower  *follow.Follower // the first
}

func (f *fleet) startServer(group, dir string) *server {
	f.t.Helper()
	s := &server{fleet: f, group: group, dir: filepath.Join(f.dir, dir), service: collection.NewService()}
	if f.layout.Shards > 1 {
		s.service.Divide("jobs", f.layout)
	}
	s.start()
	f.t.Cleanup(func() { require.NoError(f.t, s.close()) })
	return s
}

func (s *server) start() {
	s.fleet.t.Helper()
	options := s.fleet.options
	const interval = 2 * time.Millisecond
	options.Group, options.PollInterval, options.DrainTime = s.group, cmp.Or(options.PollInterval, interval), time.Millisecond
	options.Collection.PollInterval, options.Collection.RetryInterval = interval, interval
	open := func(name, dir string) {
		f, err := follow.Open(name, s.fleet.bucket, dir, s.service.Replace, &options)
		require.NoError(s.fleet.t, err)
		s.followers = append(s.followers, f)
	}
	if s.followers = nil; s.fleet.layout.Shards == 1 {
		open("jobs", s.dir)
	} else {
		s.feed = follow.OpenFeed(s.fleet.bucket, &follow.FeedOptions{PollInterval: options.PollInterval})
		for i := range s.fleet.layout.Shards {
			options.Shard = &follow.Shard{Feed: s.feed, Layout: s.fleet.layout, Number: i}
			open(shard.Name("jobs", i), s.fleet.layout.Dir(s.dir, i))
		}
	}
	s.follower = s.followers[0]
}

func (s *server) close() error {
	var err error
	for _, f := range s.followers {
		err = errors.CombineErrors(err, f.Close())
	}
	if s.feed != nil {
		s.feed.Close()
	}
	return err
}

// restart closes the server as a stop does, and starts it again.
func (s *server) restart() {
	require.NoError(s.fleet.t, s.close())
	s.start()
}

// collection returns the collection that has an id.
func (s *server) collection(id string) *collection.Collection {
	name := "jobs"
	if s.fleet.layout.Shards > 1 {
		name = shard.Name(name, s.fleet.layout.ShardString(id))
	}
	collections := s.service.Collections()
	return collections[slices.IndexFunc(collections, func(c *collection.Collection) bool { return c.Name() == name })]
}

// get returns the answer for an id.
func (s *server) get(id string) (string, error) {
	for {
		c := s.collection(id)
		document, err := c.Get(nil, []byte(id))
		if errors.Is(err, collection.ErrClosed) && s.collection(id) != c {
			continue // replaced meanwhile
		}
		return string(document), err
	}
}

// read returns all documents; ok is false if an id is unavailable.
func (s *server) read() (documents map[string]string, ok bool) {
	documents = map[string]string{}
	for i := range ids {
		id := fmt.Sprint("id-", i)
		switch document, err := s.get(id); {
		case err == nil:
			documents[id] = document
		case errors.Is(err, docservice.ErrNotFound):
		default:
			return nil, false
		}
	}
	return documents, true
}

// waitFor waits until the server answers as a manifest does.
func (s *server) waitFor(number uint64) {
	s.fleet.t.Helper()
	s.await(s.fleet.states[number], func() bool {
		for _, f := range s.followers {
			if f.Status().Served != number {
				return false
			}
		}
		return true
	})
}

// await waits for a condition, and for answers.
func (s *server) await(want map[string]string, holds func() bool) {
	s.fleet.t.Helper()
	if assert.Eventually(s.fleet.t, func() bool {
		if !holds() {
			return false
		}
		documents, ok := s.read()
		return ok && maps.Equal(documents, want)
	}, 20*time.Second, time.Millisecond) {
		return
	}
	for _, f := range s.followers {
		s.fleet.t.Logf("status: %+v", f.Status())
	}
	for _, c := range s.service.Collections() {
		s.fleet.t.Logf("%s: %+v", c.Name(), c.Status())
	}
	documents, _ := s.read()
	require.Equal(s.fleet.t, want, documents)
	s.fleet.t.FailNow()
}

// TestModel applies random operations. Servers of two groups reach their targets, and give
// no answer that is not the one of a manifest.
func TestModel(t *testing.T) {
	t.Run("one queue", func(t *testing.T) { testModel(t, newFleet(t)) })
	t.Run("shards", func(t *testing.T) { testModel(t, newShardedFleet(t)) })
}

func testModel(t *testing.T, f *fleet) {
	rng := testseed.Rand(t)
	f.publish(rng, false)
	f.announce(1)
	servers := []*server{f.startServer("", "server-1"), f.startServer("canary", "server-2")}
	for range 40 {
		number := 1 + rng.Uint64N(f.newest)
		switch rng.IntN(8) {
		case 0, 1:
			f.publish(rng, rng.IntN(3) == 0)
		case 2, 3:
			f.announce(number)
		case 4:
			f.pin(number, []string{"", "canary"}[rng.IntN(2)])
		case 5:
			f.unpin([]string{"", "canary"}[rng.IntN(2)])
		case 6:
			if rng.IntN(4) == 0 {
				f.rollback(number)
			}
		case 7:
			servers[rng.IntN(2)].restart()
		}
		record, err := f.log.Load(t.Context())
		require.NoError(t, err)
		for _, s := range servers {
			if rng.IntN(2) == 0 {
				s.waitFor(record.Target(s.group).Number)
			}
		}
	}
}

// TestAnswersDuringMovesAreThoseOfAManifest reads one id all the time while the target moves
// between two manifests.
func TestAnswersDuringMovesAreThoseOfAManifest(t *testing.T) {
	f := newFleet(t)
	for _, content := range []string{"1", "2"} {
		w, err := queue.OpenWriter(f.queue(), nil)
		require.NoError(t, err)
		_, err = w.Append([]byte("id-0"), []byte(content))
		require.NoError(t, err)
		f.documents["id-0"] = content
		require.NoError(t, w.Seal())
		require.NoError(t, w.Close())
		p, err := publish.OpenPublisher(t.Context(), f.bucket.Bucket, f.queue(), nil)
		require.NoError(t, err)
		_, err = p.Publish(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.Close())
		f.newest++
		f.states[f.newest] = maps.Clone(f.documents)
	}
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			if document, err := s.get("id-0"); err != nil || document != "1" && document != "2" {
				t.Errorf("got %q, %v", document, err)
				return
			}
		}
	})
	f.announce(2)
	s.waitFor(2)
	for range 10 {
		f.pin(1, "")
		s.waitFor(1)
		f.unpin("")
		s.waitFor(2)
	}
	cancel()
	reading.Wait()
}

// TestServingContinuesWithoutTheBucket stops and starts a server while the bucket is down.
func TestServingContinuesWithoutTheBucket(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.publish(rng, false)
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	f.bucket.down.Store(true)
	s.restart()
	s.waitFor(1)
	require.Eventually(t, func() bool { return s.follower.Status().Error != "" }, 10*time.Second, time.Millisecond)
	f.publish(rng, false)
	f.announce(2)
	f.bucket.down.Store(false)
	s.waitFor(2)
	require.Eventually(t, func() bool { return s.follower.Status().Error == "" }, 10*time.Second, time.Millisecond)
}

var errDown = errors.New("the bucket is down")

func (b *flakyBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if b.down.Load() {
		return nil, errDown
	}
	if strings.HasPrefix(name, "file/") {
		b.files.Add(1)
		b.bytes.Add(length)
		if b.gate != nil {
			select {
			case <-b.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b *flakyBucket) Head(ctx context.Context, name string) (bucket.Info, error) {
	if b.down.Load() {
		return bucket.Info{}, errDown
	}
	return b.Bucket.Head(ctx, name)
}
