package publish

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// scheduler lets the operations of several programs on a bucket happen one at a time, in a
// random order. A program may stay in the middle of its work for as long as others take.
type scheduler struct {
	waiting chan chan struct{} // programs at an operation
	ended   chan struct{}      // programs that have ended
}

// scheduled is a bucket whose operations wait for the scheduler.
type scheduled struct {
	bucket.Bucket
	s *scheduler
}

func (b scheduled) wait() {
	turn := make(chan struct{})
	b.s.waiting <- turn
	<-turn
}

func (b scheduled) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	b.wait()
	return b.Bucket.Put(ctx, name, body, size)
}

func (b scheduled) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	b.wait()
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b scheduled) Head(ctx context.Context, name string) (bucket.Info, error) {
	b.wait()
	return b.Bucket.Head(ctx, name)
}

func (b scheduled) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		b.wait()
		for info, err := range b.Bucket.List(ctx, prefix, after) {
			if !yield(info, err) {
				return
			}
			b.wait() // a list of several pages
		}
	}
}

func (b scheduled) Delete(ctx context.Context, name string) error {
	b.wait()
	return b.Bucket.Delete(ctx, name)
}

// run runs programs until all have ended.
func (s *scheduler) run(rng *rand.Rand, programs []func()) {
	var wg sync.WaitGroup
	for _, program := range programs {
		wg.Go(func() {
			program()
			s.ended <- struct{}{}
		})
	}
	var turns []chan struct{}
	for running := len(programs); running > 0; {
		for len(turns) < running { // all are at an operation
			select {
			case turn := <-s.waiting:
				turns = append(turns, turn)
			case <-s.ended:
				running--
			}
		}
		if len(turns) > 0 {
			i := rng.IntN(len(turns))
			close(turns[i])
			turns[i] = turns[len(turns)-1]
			turns = turns[:len(turns)-1]
		}
	}
	wg.Wait()
}

// requireReachable checks that every manifest that can be pinned or restored is complete.
func requireReachable(t *testing.T, b bucket.Bucket) {
	t.Helper()
	record, err := openLog(t, b).Load(t.Context())
	require.NoError(t, err)
	for m, err := range Manifests(t.Context(), b, record) {
		require.NoError(t, err)
		for _, f := range m.Files {
			info, err := b.Head(t.Context(), f.object())
			require.NoError(t, err, "manifest %d of %d, oldest %d", m.Number, record.Head.Number, record.Oldest)
			require.Equal(t, f.Size, info.Size)
		}
	}
	for _, ref := range record.keptBefore(record.Head.Number) {
		_, err := ReadManifest(t.Context(), b, ref)
		require.NoError(t, err, "manifest %d is in use", ref.Number)
	}
}

// scenario is a bucket and the programs that use it at the same time.
type scenario struct {
	s         *source
	b         *vfs.Mem  // of the bucket, at the beginning
	files     []vfs.FS  // of the queue, for each publisher: the files of a moment
	keep      [2]uint64 // of the collectors
	operators []int
}

func newScenario(t *testing.T, rng *rand.Rand) *scenario {
	c := &scenario{s: newSource(), b: vfs.NewMem(), operators: rng.Perm(3)}
	b, err := bucket.OpenDir(c.b, "bucket")
	require.NoError(t, err)
	c.s.write(t, true, [2]string{"id", "first"})
	publish(t, b, c.s)
	for range 3 {
		c.files = append(c.files, c.s.fs.CrashClone(vfs.KeepAll))
		for i := range 1 + rng.IntN(3) {
			c.s.write(t, true, [2]string{fmt.Sprint("id-", i), fmt.Sprint(rng.Uint64())})
		}
		if rng.IntN(2) == 0 {
			compact(t, c.s, 0.1, true)
			c.s.write(t, true, [2]string{"id", fmt.Sprint(rng.Uint64())})
		}
	}
	for i := range c.keep {
		c.keep[i] = 1 + rng.Uint64N(2)
	}
	return c
}

// programs returns publishers, collectors, and an operator that pins, validates and
// announces.
func (c *scenario) programs(t *testing.T, b bucket.Bucket) (programs []func()) {
	allowed := func(err error) {
		if err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrRefused) && !errors.Is(err, bucket.ErrNotExist) {
			t.Error(err)
		}
	}
	for _, fsys := range c.files {
		programs = append(programs, func() {
			p, err := OpenPublisher(t.Context(), b, c.s.dir, &Options{FS: fsys})
			if err != nil {
				allowed(err)
				return
			}
			defer p.Close()
			_, err = p.Publish(t.Context())
			allowed(err)
		})
	}
	for _, keep := range c.keep {
		programs = append(programs, func() {
			log, err := OpenLog(t.Context(), b, time.Now)
			if err == nil {
				_, err = Collect(t.Context(), b, log, keep, false)
			}
			allowed(err)
		})
	}
	return append(programs, func() {
		log, err := OpenLog(t.Context(), b, time.Now)
		allowed(err)
		for _, o := range c.operators {
			m, ref, err := FindManifest(t.Context(), b, 0, time.Now)
			if err != nil {
				allowed(err)
				continue
			}
			_, err = log.Update(t.Context(), func(r Record) (Record, error) {
				switch o {
				case 0:
					return r.Validate(ref)
				case 1:
					return r.Announce(ref)
				}
				return r.Pin(Pin{To: m.Previous})
			})
			allowed(err)
		}
	})
}

// TestCollectBesidePublishers interleaves publishers of a queue that grows and is
// compacted, collectors, and operators, in 10,000 orders of their operations, or 100,000 in
// a soak. No object of a manifest that can be used is ever missing.
func TestCollectBesidePublishers(t *testing.T) {
	scenarios, orders := 20, crashtest.Share(500, 5000)
	if race.Enabled || testing.Short() {
		orders /= 5
	}
	seeds := testseed.Rand(t)
	for range scenarios {
		rng := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c := newScenario(t, rng)
			for order := range orders {
				c.interleave(t, rng, order%50 == 0)
			}
		})
	}
}

// interleave runs the programs in a random order of their operations. With publishAgain a
// publish and a collection follow.
func (c *scenario) interleave(t *testing.T, rng *rand.Rand, publishAgain bool) {
	b, err := bucket.OpenDir(c.b.CrashClone(vfs.KeepAll), "bucket")
	require.NoError(t, err)
	sched := &scheduler{waiting: make(chan chan struct{}), ended: make(chan struct{})}
	sched.run(rng, c.programs(t, scheduled{b, sched}))
	requireReachable(t, b)
	if !publishAgain {
		return
	}
	publish(t, b, c.s)
	_, err = Collect(t.Context(), b, openLog(t, b), 1, false)
	require.NoError(t, err)
	requireReachable(t, b)
	require.Equal(t, c.s.documents, restore(t, b, 0).documents)
}

func TestCollectDeletesWhatNoManifestLists(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "1"})
	publish(t, b, s)
	s.write(t, true, [2]string{"a", "2"})
	compact(t, s, 0.1, true)
	s.write(t, true, [2]string{"b", "3"})
	publish(t, b, s)
	log := openLog(t, b)
	_, err := log.Update(t.Context(), func(r Record) (Record, error) { return r.Retain(Ref{Number: 1}) })
	require.NoError(t, err)
	kept, err := Collect(t.Context(), b, log, 2, false)
	require.NoError(t, err)
	require.Equal(t, Collected{Oldest: 1}, kept)
	_, err = Collect(t.Context(), b, log, 0, false)
	require.ErrorIs(t, err, ErrRefused)

	_, err = log.Update(t.Context(), func(r Record) (Record, error) { return r.Release(1) })
	require.NoError(t, err)
	dry, err := Collect(t.Context(), b, log, 1, true)
	require.NoError(t, err)
	done, err := Collect(t.Context(), b, log, 1, false)
	require.NoError(t, err)
	require.Equal(t, dry, done)
	require.Equal(t, 1, done.Manifests)
	require.Equal(t, 1, done.Files, "the segment that the rewrite has replaced")
	require.Positive(t, done.Bytes)
	_, _, err = FindManifest(t.Context(), b, 1, time.Now)
	require.ErrorContains(t, err, "was collected by gc")
}

// TestPublishCommitsInChunks interrupts the upload of many files: the files uploaded before
// a manifest is not uploaded again.
func TestPublishCommitsInChunks(t *testing.T) {
	before := chunkBytes
	chunkBytes = 1_000
	defer func() { chunkBytes = before }()
	b, s := newBucket(t), newSource()
	for i := range 20 {
		s.write(t, true, [2]string{fmt.Sprint("id-", i), "document"})
	}
	failing := &failAfter{Bucket: b, puts: 1 << 30}
	p, err := OpenPublisher(t.Context(), failing, s.dir, &Options{FS: s.fs})
	require.NoError(t, err)
	failing.puts = 12
	_, err = p.Publish(t.Context())
	require.ErrorIs(t, err, errPut)
	require.NoError(t, p.Close())
	newest, _, err := FindManifest(t.Context(), b, 0, time.Now)
	require.NoError(t, err)
	require.NotEmpty(t, newest.Files)
	require.Less(t, len(newest.Files), 20)

	rest := publish(t, b, s)
	require.Equal(t, rest.Manifest.Bytes()-newest.Bytes(), rest.Uploaded)
	require.Equal(t, s.documents, restore(t, b, 0).documents)
	for number := uint64(1); number < rest.Ref.Number; number++ {
		require.NotEmpty(t, restore(t, b, number).documents, "each manifest in between is a whole queue")
	}
}

var errPut = errors.New("put failed")

// failAfter fails puts after a number of them.
type failAfter struct {
	bucket.Bucket
	mu   sync.Mutex
	puts int
}

func (b *failAfter) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	b.mu.Lock()
	b.puts--
	failed := b.puts < 0
	b.mu.Unlock()
	if failed {
		return errPut
	}
	return b.Bucket.Put(ctx, name, body, size)
}
