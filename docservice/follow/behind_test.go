package follow_test

import (
	"context"
	"fmt"
	"io"
	"iter"
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
	"docstore/internal/ctxtime"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"

	"github.com/stretchr/testify/require"
)

const (
	responseTime = 50 * time.Millisecond
	announced    = 549 // increments
	// startLimit bounds the time until a server with so many increments to read is ready.
	startLimit = 2 * time.Second
)

// slowBucket delays each response, and gives none while it is away.
type slowBucket struct {
	bucket.Bucket
	delay atomic.Int64
	away  atomic.Bool
	// search, if not nil, is called once before a server looks for increments.
	mu struct {
		sync.Mutex
		search func()
	}
}

func (b *slowBucket) wait(ctx context.Context) error {
	delay := time.Duration(b.delay.Load())
	if b.away.Load() {
		delay = 24 * time.Hour
	}
	if !ctxtime.Sleep(ctx, delay) {
		return ctx.Err()
	}
	return nil
}

func (b *slowBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := b.wait(ctx); err != nil {
		return nil, err
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b *slowBucket) Head(ctx context.Context, name string) (bucket.Info, error) {
	if err := b.wait(ctx); err != nil {
		return bucket.Info{}, err
	}
	if strings.HasPrefix(name, "increment/") {
		b.mu.Lock() // the other requests come after it
		if b.mu.search != nil {
			b.mu.search()
		}
		b.mu.search = nil
		b.mu.Unlock()
	}
	return b.Bucket.Head(ctx, name)
}

func (b *slowBucket) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		if err := b.wait(ctx); err != nil {
			yield(bucket.Info{}, err)
			return
		}
		b.Bucket.List(ctx, prefix, after)(yield)
	}
}

// unwatched is a file system whose directories cannot be watched: virtual time does not advance
// during a read from the kernel.
type unwatched struct{ vfs.FS }

// announcer writes a queue, or shards, and announces each document as an increment. The bucket
// is in memory.
type announcer struct {
	t         *testing.T
	fs        vfs.FS
	dir       string
	store     bucket.Bucket // without delay
	slow      *slowBucket
	log       *publish.Log
	layout    shard.Layout
	writers   []*queue.Writer
	publisher *publish.Publisher
	documents map[string]string // announced
	manifests map[uint64]map[string]string
	appended  int
}

func newAnnouncer(t *testing.T, layout shard.Layout) *announcer {
	fsys, dir := unwatched{vfs.NewMem()}, "root"
	store, err := bucket.OpenDir(vfs.NewMem(), "bucket")
	require.NoError(t, err)
	log, err := publish.OpenLog(t.Context(), store, time.Now)
	require.NoError(t, err)
	a := &announcer{
		t: t, fs: fsys, dir: dir, store: store, slow: &slowBucket{Bucket: store}, log: log, layout: layout,
		documents: map[string]string{}, manifests: map[uint64]map[string]string{},
	}
	a.slow.delay.Store(int64(responseTime))
	source := filepath.Join(dir, "queue")
	require.NoError(t, shard.Write(fsys, source, layout))
	for i := range layout.Shards {
		w, err := queue.OpenWriter(layout.Dir(source, i), &queue.WriterOptions{FS: fsys, Codec: "none"})
		require.NoError(t, err)
		a.writers = append(a.writers, w)
	}
	a.put(8 * layout.Shards) // documents in each shard
	a.seal()
	a.publisher, err = publish.OpenPublisher(t.Context(), store, source, &publish.Options{FS: fsys, Stream: true})
	require.NoError(t, err)
	a.publish()
	return a
}

func (a *announcer) close() {
	require.NoError(a.t, a.publisher.Close())
	for _, w := range a.writers {
		require.NoError(a.t, w.Close())
	}
}

// put appends documents: new ones, and another version of an earlier one with each.
func (a *announcer) put(count int) {
	for range count {
		for _, n := range []int{a.appended, a.appended / 2} {
			id, document := fmt.Sprint("id-", n), fmt.Sprint("version ", a.appended)
			w := a.writers[a.layout.ShardString(id)]
			_, err := w.Append([]byte(id), []byte(document))
			require.NoError(a.t, err)
			a.documents[id] = document
		}
		a.appended++
	}
	for _, w := range a.writers {
		require.NoError(a.t, w.Flush())
	}
}

func (a *announcer) seal() {
	for _, w := range a.writers {
		require.NoError(a.t, w.Seal())
	}
}

// announce announces increments of one document each.
func (a *announcer) announce(increments int) {
	_, err := a.publisher.Check(a.t.Context())
	require.NoError(a.t, err)
	for range increments {
		a.put(1)
		extended, err := a.publisher.Extend(a.t.Context())
		require.NoError(a.t, err)
		require.NotZero(a.t, extended.Bytes)
	}
}

// publish publishes the sealed segments, which announces them.
func (a *announcer) publish() uint64 {
	published, err := a.publisher.Publish(a.t.Context())
	require.NoError(a.t, err)
	require.True(a.t, published.Announced)
	copied := map[string]string{}
	for id, document := range a.documents {
		copied[id] = document
	}
	a.manifests[published.Ref.Number] = copied
	return published.Ref.Number
}

func (a *announcer) change(number uint64, operation func(publish.Record, publish.Ref) (publish.Record, error)) {
	_, ref, err := publish.FindManifest(a.t.Context(), a.store, number, time.Now)
	require.NoError(a.t, err)
	_, err = a.log.Update(a.t.Context(), func(r publish.Record) (publish.Record, error) { return operation(r, ref) })
	require.NoError(a.t, err)
}

func (a *announcer) pin(number uint64) {
	a.change(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) { return r.Pin(publish.Pin{To: ref}) })
}

func (a *announcer) unpin() {
	a.change(1, func(r publish.Record, _ publish.Ref) (publish.Record, error) { return r.Unpin("", true) })
}

func (a *announcer) rollback(number uint64) {
	a.change(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
		return r.Rollback(publish.Pin{To: ref})
	})
}

// reading is a server of an announcer whose answers are checked.
type reading struct {
	*announcer
	service   *collection.Service
	feed      *follow.Feed // nil: one shard
	followers []*follow.Follower
	started   time.Time
	next      int // id to be asked for
}

func (a *announcer) serve(name string) *reading {
	dir := filepath.Join(a.dir, name)
	r := &reading{announcer: a, service: collection.NewService(), started: time.Now()}
	options := follow.Options{Collection: collection.Options{FS: a.fs, VerifyInterval: -1, ScrubInterval: -1, SweepInterval: -1}}
	open := func(name, dir string) {
		f, err := follow.Open(name, a.slow, dir, r.service.Replace, &options)
		require.NoError(a.t, err)
		r.followers = append(r.followers, f)
	}
	if a.layout.Shards == 1 {
		open("jobs", dir)
		return r
	}
	r.service.Divide("jobs", a.layout)
	r.feed = follow.OpenFeed(a.slow, nil)
	for i := range a.layout.Shards {
		options.Shard = &follow.Shard{Feed: r.feed, Layout: a.layout, Number: i}
		open(shard.Name("jobs", i), a.layout.Dir(dir, i))
	}
	return r
}

func (r *reading) stop() {
	for _, f := range r.followers {
		require.NoError(r.t, f.Close())
	}
	if r.feed != nil {
		r.feed.Close()
	}
}

// get asks the collection of an id. ready: its Follower was ready before.
func (r *reading) get(id string) (document string, ready bool, err error) {
	name, follower := "jobs", r.followers[0]
	if r.layout.Shards > 1 {
		i := r.layout.ShardString(id)
		name, follower = shard.Name(name, i), r.followers[i]
	}
	ready = follower.Status().Files.IsReady()
	collections := r.service.Collections()
	c := collections[slices.IndexFunc(collections, func(c *collection.Collection) bool { return c.Name() == name })]
	content, err := c.Get(nil, []byte(id))
	return string(content), ready, err
}

// check gets some documents that exist. None is "not found", and a ready server has the announced
// versions.
func (r *reading) check(want map[string]string) {
	r.t.Helper()
	for range 20 {
		id := fmt.Sprint("id-", r.next%r.appended)
		r.next += 7
		expected, exists := want[id]
		document, ready, err := r.get(id)
		switch {
		case ready && exists:
			require.NoError(r.t, err, id)
			require.Equal(r.t, expected, document, id)
		case ready, !exists:
		default:
			require.NotErrorIs(r.t, err, docservice.ErrNotFound, "%s: %+v", id, r.followers[0].Status())
		}
	}
}

func (r *reading) ready() bool {
	return !slices.ContainsFunc(r.followers, func(f *follow.Follower) bool { return !f.Status().Files.IsReady() })
}

// until checks answers until a condition holds.
func (r *reading) until(want map[string]string, holds func() bool) {
	r.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		r.check(want)
		require.Less(r.t, time.Since(began), time.Minute, "%+v", r.followers[0].Status())
	}
}

// finish waits until the server is ready, and reads all documents.
func (r *reading) finish(want map[string]string) {
	r.t.Helper()
	r.until(want, r.ready)
	r.requireAll(want)
}

func (r *reading) requireAll(want map[string]string) {
	r.t.Helper()
	for i := range r.appended {
		id := fmt.Sprint("id-", i)
		document, _, err := r.get(id)
		if expected, exists := want[id]; exists {
			require.NoError(r.t, err, id)
			require.Equal(r.t, expected, document, id)
		} else {
			require.ErrorIs(r.t, err, docservice.ErrNotFound, id)
		}
	}
}

// added returns the least number of increments that a Follower has added.
func (r *reading) added() uint64 {
	least := r.followers[0].Status().Increment
	for _, f := range r.followers {
		least = min(least, f.Status().Increment)
	}
	return least
}

// shareCompressors makes the shared compressors, which must not belong to a bubble of virtual time.
func shareCompressors(t *testing.T) {
	outside := newAnnouncer(t, shard.Layout{Shards: 1})
	outside.pin(1)
	outside.close()
}

// TestStartWhileIncrementsAreBehind: a server is ready when it has the increments that were
// announced before its start. Until then it finds no document missing, and it reads them in
// less than startLimit.
func TestStartWhileIncrementsAreBehind(t *testing.T) {
	shareCompressors(t)
	random := testseed.Rand(t)
	for name, test := range map[string]func(t *testing.T, a *announcer){
		"fresh":                 testFreshStart,
		"away":                  testStartAfterAbsence,
		"restart while behind":  testRestartWhileBehind,
		"pin while behind":      testPinWhileBehind,
		"rollback while behind": testRollbackWhileBehind,
		"collected while read":  testIncrementsCollectedWhileRead,
		"collected in search":   testIncrementsCollectedInSearch,
		"lost":                  testLostIncrement,
		"damaged":               testReplaceIncludesIncrements,
		"lag":                   testLagIncludesIncrements,
	} {
		t.Run(name, func(t *testing.T) {
			for name, layout := range map[string]shard.Layout{"one queue": {Shards: 1}, "shards": {Shards: 4, Seed: 3}} {
				t.Run(name, func(t *testing.T) {
					if testing.Short() && random.IntN(2) == 0 {
						t.Skip("-short runs half of the cases")
					}
					virtualtime.Test(t, func(t *testing.T) {
						a := newAnnouncer(t, layout)
						defer a.close()
						test(t, a)
					})
				})
			}
		})
	}
}

func testFreshStart(t *testing.T, a *announcer) {
	a.announce(announced)
	r := a.serve("server")
	defer r.stop()
	r.finish(a.documents)
	require.Less(t, time.Since(r.started), startLimit)
}

func testStartAfterAbsence(t *testing.T, a *announcer) {
	a.announce(100)
	r := a.serve("server")
	r.finish(a.documents)
	r.stop()
	a.announce(announced)
	r = a.serve("server")
	defer r.stop()
	r.finish(a.documents)
	require.Less(t, time.Since(r.started), startLimit)
}

// testRestartWhileBehind restarts a server that has not reached its goal, while the bucket is
// away.
func testRestartWhileBehind(t *testing.T, a *announcer) {
	a.announce(announced)
	r := a.serve("server")
	r.until(a.documents, func() bool { return r.added() > 100 })
	require.False(t, r.ready())
	r.stop()
	a.slow.away.Store(true)
	r = a.serve("server")
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		r.check(a.documents)
		require.False(t, r.ready())
	}
	r.stop()
	a.slow.away.Store(false)
	r = a.serve("server")
	r.finish(a.documents)
	require.Less(t, time.Since(r.started), startLimit)

	// A server that has reached its goal needs no bucket, also after a power cut.
	time.Sleep(time.Minute)
	afterPowerCut := a.fs.(unwatched).FS.(*vfs.Mem).CrashClone(vfs.KeepSynced)
	r.stop()
	a.slow.away.Store(true)
	r = a.serve("server")
	r.finish(a.documents)
	r.stop()
	before := a.fs
	a.fs = unwatched{afterPowerCut}
	r = a.serve("server")
	r.finish(a.documents)
	r.stop()
	a.fs = before
	a.slow.away.Store(false)
}

func testPinWhileBehind(t *testing.T, a *announcer) {
	a.announce(announced)
	r := a.serve("server")
	defer r.stop()
	r.until(a.documents, func() bool { return r.added() > 100 })
	a.pin(1)
	r.until(nil, func() bool { return r.ready() && r.added() == 0 })
	r.requireAll(a.manifests[1])

	// A server that starts under the pin, and one whose pin ends before it is ready.
	other := a.serve("other")
	other.finish(a.manifests[1])
	other.stop()
	third := a.serve("third")
	defer third.stop()
	time.Sleep(4 * responseTime)
	require.False(t, third.ready())
	a.unpin()
	third.until(nil, third.ready)
	if third.added() > 0 {
		third.requireAll(a.documents)
	}
	third.until(nil, func() bool { return third.added() == announced })
}

func testRollbackWhileBehind(t *testing.T, a *announcer) {
	a.announce(10)
	a.seal()
	require.EqualValues(t, 2, a.publish())
	a.announce(announced)
	r := a.serve("server")
	defer r.stop()
	r.until(a.documents, func() bool { return r.added() > 100 })
	a.rollback(1)
	r.until(nil, func() bool { return r.ready() && r.followers[0].Status().Served == 1 })
	time.Sleep(time.Second)
	r.requireAll(a.manifests[1])
}

// testIncrementsCollectedWhileRead announces the next manifest and deletes the increments of the
// one before, while a server reads them.
func testIncrementsCollectedWhileRead(t *testing.T, a *announcer) {
	for _, responses := range []int{5, 7, 9, 11, 13} {
		a.announce(announced / 3)
		r := a.serve(fmt.Sprint("server-", responses))
		time.Sleep(time.Duration(responses) * responseTime)
		a.seal()
		a.publish()
		a.announce(20)
		_, err := publish.Collect(t.Context(), a.store, a.log, 1, false)
		require.NoError(t, err)
		r.finish(a.documents)
		r.stop()
	}
}

// testIncrementsCollectedInSearch deletes the increments while a server looks for the newest one.
func testIncrementsCollectedInSearch(t *testing.T, a *announcer) {
	a.announce(5)
	r := a.serve("server")
	r.finish(a.documents)
	r.stop()
	a.announce(200)
	a.slow.mu.search = func() {
		a.seal()
		a.publish()
		_, err := publish.Collect(t.Context(), a.store, a.log, 1, false)
		require.NoError(t, err)
	}
	r = a.serve("server")
	defer r.stop()
	r.finish(a.documents)
	require.Nil(t, a.slow.mu.search)
}

// testLostIncrement: without an announced increment a server is not ready, and says which one is
// missing, until the next manifest has its entries.
func testLostIncrement(t *testing.T, a *announcer) {
	a.announce(200)
	for info, err := range a.store.List(t.Context(), "increment/", "") {
		require.NoError(t, err)
		if strings.HasSuffix(info.Name, "/000150") {
			require.NoError(t, a.store.Delete(t.Context(), info.Name))
		}
	}
	r := a.serve("server")
	defer r.stop()
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		r.check(a.documents)
		require.False(t, r.ready())
	}
	r.until(a.documents, func() bool {
		return strings.Contains(r.followers[0].Status().Error, "increment 150 of manifest 1, which has 200, is missing")
	})
	a.seal()
	a.publish()
	r.until(nil, func() bool { return r.ready() && r.followers[0].Status().Served == 2 })
	r.requireAll(a.documents)
}

// testReplaceIncludesIncrements: a ready server whose increments are damaged makes its state
// again. It serves the new one when that has all increments.
func testReplaceIncludesIncrements(t *testing.T, a *announcer) {
	a.announce(announced)
	r := a.serve("server")
	r.finish(a.documents)
	r.stop()
	name := filepath.Join(r.followers[0].FilesDir(), queue.OpenSegmentName(2))
	content, err := vfs.ReadFile(a.fs, name)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, vfs.WriteFileAtomic(a.fs, name, content))
	r = a.serve("server")
	defer r.stop()
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		for i := range a.appended {
			_, _, err := r.get(fmt.Sprint("id-", i))
			require.NotErrorIs(t, err, docservice.ErrNotFound)
		}
	}
	r.finish(a.documents)
}

// testLagIncludesIncrements: a server that lacks increments is behind its target, and does not
// know that it serves it.
func testLagIncludesIncrements(t *testing.T, a *announcer) {
	r := a.serve("server")
	defer r.stop()
	r.finish(a.documents)
	for range 20 {
		a.announce(1)
		time.Sleep(time.Second)
		for _, f := range r.followers {
			s := f.Status()
			require.Zero(t, s.Behind)
			require.Less(t, time.Since(s.Current), 3*time.Second)
		}
	}
	a.slow.delay.Store(int64(5 * time.Second))
	a.announce(announced)
	r.until(nil, func() bool {
		return !slices.ContainsFunc(r.followers, func(f *follow.Follower) bool { return f.Status().Behind.IsZero() })
	})
	for lacks := true; lacks; time.Sleep(time.Second) {
		lacks = false
		for _, f := range r.followers {
			s := f.Status()
			require.Greater(t, time.Since(s.Current), 5*time.Second)
			if s.Increment < 20+announced-publish.MaxAhead {
				lacks = true
				require.NotZero(t, s.Behind)
			}
		}
	}
	a.slow.delay.Store(int64(responseTime))
	time.Sleep(time.Minute)
	for _, f := range r.followers {
		require.Zero(t, f.Status().Behind)
	}
	r.requireAll(a.documents)
}

// TestLagByAnotherClock: the time for which a server is behind is that of its clock.
func TestLagByAnotherClock(t *testing.T) {
	rng, f := testseed.Rand(t), newFleet(t)
	f.options.Collection.Now = func() time.Time { return time.Now().Add(-time.Hour).Round(0) }
	f.publish(rng, false)
	f.announce(1)
	var failing atomic.Bool
	f.bucket.Bucket = bucket.NewFault(f.bucket.Bucket, func(_ context.Context, operation, name string) *bucket.Failure {
		if failing.Load() && operation == "get" && strings.HasPrefix(name, "file/") {
			return &bucket.Failure{Err: bucket.ErrDenied}
		}
		return nil
	})
	s := f.startServer("", "server")
	s.waitFor(1)
	require.Zero(t, s.follower.Status().Lag)
	failing.Store(true)
	f.publish(rng, false)
	f.announce(2)
	s.eventually(func(s follow.Status) bool { return s.Lag > 0 })
	require.Less(t, s.follower.Status().Lag, 10*time.Minute)
	failing.Store(false)
	s.waitFor(2)
}
