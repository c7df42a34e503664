package publish

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// killedBucket fails every request after a number of them, as if the process were killed.
type killedBucket struct {
	bucket.Bucket
	left atomic.Int64 // requests, which may be concurrent
}

func newKilledBucket(b bucket.Bucket, requests int) *killedBucket {
	k := &killedBucket{Bucket: b}
	k.left.Store(int64(requests))
	return k
}

var errKilled = errors.New("killed")

func (b *killedBucket) kill() error {
	if b.left.Add(-1) < 0 {
		return errKilled
	}
	return nil
}

func (b *killedBucket) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := b.kill(); err != nil {
		return err
	}
	return b.Bucket.Put(ctx, name, body, size)
}

func (b *killedBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := b.kill(); err != nil {
		return nil, err
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b *killedBucket) Head(ctx context.Context, name string) (bucket.Info, error) {
	if err := b.kill(); err != nil {
		return bucket.Info{}, err
	}
	return b.Bucket.Head(ctx, name)
}

// life is a collection and the model of its manifests.
type life struct {
	t       *testing.T
	rng     *rand.Rand
	b       bucket.Bucket
	s       *source
	cursor  []string // of each queue
	states  map[uint64]map[string]string
	cursors map[uint64][]string
	// accepted: bad manifests that unpin --accept-bad allowed.
	accepted map[uint64]bool
	step     int
}

func newLife(t *testing.T, rng *rand.Rand, s *source) *life {
	l := &life{
		t: t, rng: rng, b: newBucket(t), s: s, accepted: map[uint64]bool{}, cursor: make([]string, s.layout.Shards),
		states: map[uint64]map[string]string{}, cursors: map[uint64][]string{},
	}
	l.append()
	l.publish()
	return l
}

func (l *life) record() Record {
	l.t.Helper()
	r, err := openLog(l.t, l.b).Load(l.t.Context())
	require.NoError(l.t, err)
	return r
}

// append appends a batch and seals it.
func (l *life) append() {
	l.t.Helper()
	writers, cursor := l.s.openWriters(l.t), fmt.Sprint("cursor ", l.step)
	for i := range 1 + l.rng.IntN(8) {
		r := queue.Record{ID: fmt.Append(nil, "id-", l.rng.IntN(12)), Cursor: []byte(cursor)}
		if l.rng.IntN(4) == 0 {
			r.Delete = true
			delete(l.s.documents, string(r.ID))
		} else {
			r.Document = fmt.Append(nil, l.step, "/", i)
			l.s.documents[string(r.ID)] = string(r.Document)
		}
		shard := l.s.layout.Shard(r.ID)
		_, err := writers[shard].Put(r)
		require.NoError(l.t, err)
		l.cursor[shard] = cursor
	}
	for _, w := range writers {
		require.NoError(l.t, w.Close())
	}
}

// publish publishes, and enters the manifest into the model.
func (l *life) publish() {
	l.t.Helper()
	l.add(publish(l.t, l.b, l.s).Ref.Number)
}

// add enters the head, with the content of the queue, into the model.
func (l *life) add(number uint64) {
	l.t.Helper()
	if _, known := l.states[number]; !known {
		l.states[number], l.cursors[number] = maps.Clone(l.s.documents), slices.Clone(l.cursor)
	}
}

// refresh reads the queue after an operation that changed it or was killed.
func (l *life) refresh() {
	l.t.Helper()
	l.s.fs = l.s.fs.CrashClone(vfs.KeepRandom(l.rng.Uint64()))
	for i, w := range l.s.openWriters(l.t) {
		l.cursor[i] = string(w.Cursor())
		require.NoError(l.t, w.Close())
	}
	l.s.documents = read(l.t, l.s.fs, l.s.dir)
}

// change applies an operation to the record; a refusal is allowed.
func (l *life) change(number uint64, operation func(Record, Ref) (Record, error)) (Record, error) {
	l.t.Helper()
	_, ref, err := FindManifest(l.t.Context(), l.b, number, time.Now)
	if err == nil {
		var r Record
		if r, err = openLog(l.t, l.b).Update(l.t.Context(), func(r Record) (Record, error) { return operation(r, ref) }); err == nil {
			return r, nil
		}
	}
	require.ErrorIs(l.t, err, ErrRefused)
	return Record{}, err
}

// killable returns a bucket that may fail after some requests.
func (l *life) killable() bucket.Bucket {
	if l.rng.IntN(3) > 0 {
		return l.b
	}
	return newKilledBucket(l.b, l.rng.IntN(30))
}

// revert reverts to a manifest.
func (l *life) revert(number uint64) {
	l.t.Helper()
	before := l.record()
	undone := map[string]bool{}
	result, err := Revert(l.t.Context(), l.killable(), l.s.dir, number, func(u Undone) error {
		undone[string(u.ID)] = true
		return nil
	}, &Options{FS: l.s.fs})
	head := l.s.documents
	cursor := slices.Clone(l.cursor)
	l.refresh()
	if err != nil {
		require.True(l.t, errors.Is(err, ErrRefused) || errors.Is(err, errKilled), "%+v", err)
		return
	}
	require.Equal(l.t, l.states[number], l.s.documents)
	require.Equal(l.t, cursor, l.cursor, "the cursor of the newest entries stays")
	require.EqualValues(l.t, len(undone), result.Restored+result.Deleted)
	for id := range undone {
		require.NotEqual(l.t, head[id], l.s.documents[id], "the id %s was not different", id)
	}
	l.add(result.Ref.Number)
	// Without a rollback, servers continue to serve a bad manifest until the new one is announced.
	l.accepted[before.Announced.Number], l.accepted[before.Target("").Number] = true, true
	r := l.record()
	require.False(l.t, r.IsBad(r.Head.Number))
	for n := number + 1; n < r.Head.Number; n++ {
		require.True(l.t, r.IsBad(n), "manifest %d, between %d and %d", n, number, r.Head.Number)
	}
	if !before.Frozen || l.rng.IntN(2) == 0 {
		return
	}
	_, err = l.change(0, Record.Validate)
	require.NoError(l.t, err)
	r, err = l.change(0, Record.Announce)
	require.NoError(l.t, err)
	require.Nil(l.t, r.PinOf(""))
	require.Equal(l.t, r.Head, r.Announced)
}

// discard discards a manifest.
func (l *life) discard(number uint64) {
	l.t.Helper()
	result, err := Discard(l.t.Context(), l.killable(), l.s.dir, number, &Options{FS: l.s.fs})
	l.refresh()
	if err == nil {
		require.Equal(l.t, l.states[result.Parent], l.s.documents)
		require.Equal(l.t, l.cursors[result.Parent], l.cursor)
		require.Equal(l.t, Discarded{result.From, result.To, result.Parent, result.Entries}, result)
		if l.rng.IntN(2) == 0 {
			l.publish()
		}
		return
	}
	require.True(l.t, errors.Is(err, ErrRefused) || errors.Is(err, errKilled), "%+v", err)
	for errors.Is(err, errKilled) { // the queue cannot be published until discard has completed
		_, err = Discard(l.t.Context(), l.b, l.s.dir, number, &Options{FS: l.s.fs})
		l.refresh()
	}
}

// compactQueue compacts, mostly with regard to the manifests in use.
func (l *life) compactQueue() {
	l.t.Helper()
	opts := maintain.CompactOptions{FS: l.s.fs, MaxDead: l.rng.Float64(), DeleteOriginals: l.rng.IntN(2) == 0}
	var states []RetainedState
	if l.rng.IntN(4) > 0 {
		var err error
		states, err = RetainedStates(l.t.Context(), l.b, l.s.dir, 1+l.rng.Uint64N(4), &Options{FS: l.s.fs})
		require.NoError(l.t, err)
	}
	for i, dir := range l.s.dirs() {
		opts.RetainedEnds = RetainedEnds(states, i)
		_, err := maintain.Compact(l.t.Context(), dir, &opts)
		require.NoError(l.t, err)
	}
}

// random applies one operation.
func (l *life) random() {
	l.t.Helper()
	l.step++
	r := l.record()
	number := 1 + l.rng.Uint64N(r.Head.Number)
	group := []string{"", "canary"}[l.rng.IntN(2)]
	switch l.rng.IntN(16) {
	case 0, 1, 2:
		l.append()
	case 3, 4:
		l.publish()
	case 5:
		l.compactQueue()
	case 6, 7:
		_, _ = l.change(0, Record.Validate)
		_, _ = l.change(0, Record.Announce)
	case 8:
		_, _ = l.change(number, func(r Record, ref Ref) (Record, error) {
			return r.StartCanary(Canary{Group: "canary", To: ref})
		})
	case 9:
		_, _ = l.change(number, func(r Record, ref Ref) (Record, error) { return r.Pin(Pin{Group: group, To: ref}) })
	case 10:
		accept := l.rng.IntN(4) == 0
		r, err := l.change(0, func(r Record, _ Ref) (Record, error) { return r.Unpin(group, accept) })
		if err == nil && accept {
			l.accepted[r.Announced.Number] = true
		}
	case 11:
		_, _ = l.change(number, func(r Record, ref Ref) (Record, error) { return r.Rollback(Pin{To: ref}) })
	case 12:
		l.revert(number)
	case 13:
		_, _ = l.change(0, Record.Refuse)
		if l.rng.IntN(2) == 0 {
			number = 0
		}
		l.discard(number)
	case 14:
		if l.rng.IntN(2) == 0 {
			_, _ = l.change(number, Record.Retain)
		} else {
			_, _ = l.change(0, func(r Record, _ Ref) (Record, error) { return r.Release(number) })
		}
	case 15:
		_, err := Collect(l.t.Context(), l.b, openLog(l.t, l.b), 1+l.rng.Uint64N(6), false)
		require.NoError(l.t, err)
	}
}

// check compares manifests in the bucket with the model.
func (l *life) check() {
	l.t.Helper()
	r := l.record()
	numbers := []uint64{r.Head.Number, 1 + l.rng.Uint64N(r.Head.Number)}
	for _, group := range []string{"", "canary"} {
		target := r.Target(group).Number
		require.True(l.t, !r.IsBad(target) || l.accepted[target], "group %q is told to serve %d: %+v", group, target, r)
		require.LessOrEqual(l.t, target, r.served())
		numbers = append(numbers, target)
	}
	slices.Sort(numbers)
	for _, number := range slices.Compact(numbers) {
		if number == 0 || r.known(number) != nil {
			continue
		}
		require.Equal(l.t, l.states[number], restore(l.t, l.b, number).documents, "manifest %d; %+v", number, r)
	}
}

// TestLifeCycleModel applies random operations to a collection. Some of them are killed.
// Every manifest in use has the documents of its moment.
func TestLifeCycleModel(t *testing.T) {
	t.Run("one queue", func(t *testing.T) { testLifeCycle(t, 1_000, newSource) })
	t.Run("shards", func(t *testing.T) { testLifeCycle(t, 500, func() *source { return newSharded(t) }) })
}

func testLifeCycle(t *testing.T, steps int, source func() *source) {
	if crashtest.Soak() {
		steps *= 10
	}
	rng := testseed.Rand(t)
	for step := 0; step < steps; {
		l := newLife(t, rng, source())
		for range 100 {
			l.random()
			l.check()
			step++
		}
	}
}
