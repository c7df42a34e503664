package publishtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// NewBucket returns an empty bucket in memory.
func NewBucket(t testing.TB) bucket.Bucket {
	t.Helper()
	b, err := bucket.OpenDir(vfs.NewMem(), "bucket")
	require.NoError(t, err)
	return b
}

// TestArbiter tests the contract of publish.Arbiter. open returns the arbiter as another
// process sees it.
func TestArbiter(t *testing.T, open func(t *testing.T) publish.Arbiter) {
	t.Run("swap", func(t *testing.T) { testSwap(t, open(t)) })
	t.Run("claim", func(t *testing.T) { testClaim(t, open(t), open(t)) })
	t.Run("wait", func(t *testing.T) { testWait(t, open(t), open(t)) })
	t.Run("writers", func(t *testing.T) { testWriters(t, open) })
}

func testSwap(t *testing.T, a publish.Arbiter) {
	ctx := t.Context()
	value, version, err := a.Get(ctx, "swap")
	require.NoError(t, err)
	require.Zero(t, version)
	require.Empty(t, value)
	swap := func(version int64, value string, want bool) {
		t.Helper()
		swapped, err := a.Swap(ctx, "swap", version, []byte(value), 0)
		require.NoError(t, err)
		require.Equal(t, want, swapped)
	}
	swap(7, "a", false)
	swap(0, "a", true)
	swap(0, "b", false)
	_, first, err := a.Get(ctx, "swap")
	require.NoError(t, err)
	require.NotZero(t, first)
	swap(first, "b", true)
	swap(first, "c", false)
	value, second, err := a.Get(ctx, "swap")
	require.NoError(t, err)
	require.Equal(t, "b", string(value))
	require.Greater(t, second, first)
	require.NoError(t, a.Remove(ctx, "swap"))
	_, version, err = a.Get(ctx, "swap")
	require.NoError(t, err)
	require.Zero(t, version)
}

func testClaim(t *testing.T, a, b publish.Arbiter) {
	ctx := t.Context()
	swap := func(version, fence int64, want bool) {
		t.Helper()
		swapped, err := a.Swap(ctx, "claim", version, []byte("value"), fence)
		require.NoError(t, err)
		require.Equal(t, want, swapped)
	}
	swap(0, 1, false)
	first, release, err := a.Claim(ctx, "claim", 0)
	require.NoError(t, err)
	_, _, err = b.Claim(ctx, "claim", 0)
	require.ErrorIs(t, err, publish.ErrRefused)
	swap(0, first, true)
	_, version, err := a.Get(ctx, "claim")
	require.NoError(t, err)
	release()
	release()
	swap(version, first, false)
	second, release, err := b.Claim(ctx, "claim", time.Minute)
	require.NoError(t, err)
	defer release()
	require.NotEqual(t, first, second)
	swap(version, first, false)
	swap(version, second, true)
}

func testWait(t *testing.T, a, b publish.Arbiter) {
	ctx := t.Context()
	require.NoError(t, a.Notify(ctx, "wait", 5))
	number, err := b.Wait(ctx, "wait", 4)
	require.NoError(t, err)
	require.EqualValues(t, 5, number)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	_, err = b.Wait(short, "wait", 5)
	require.Error(t, err)
	cancel()
	woken := make(chan error)
	go func() {
		_, err := b.Wait(ctx, "wait", 5)
		woken <- err
	}()
	require.NoError(t, a.Notify(ctx, "wait", 6))
	require.NoError(t, <-woken)
}

// lossy executes some swaps twice, as a client does that repeats a request after a lost
// response, and fails others after they were executed.
type lossy struct {
	publish.Arbiter
	choose func() int
}

var errLost = errors.New("the response was lost")

func (l lossy) Swap(ctx context.Context, key string, version int64, value []byte, fence int64) (bool, error) {
	swapped, err := l.Arbiter.Swap(ctx, key, version, value, fence)
	switch l.choose() {
	case 0:
		return l.Arbiter.Swap(ctx, key, version, value, fence)
	case 1:
		return false, errLost
	}
	return swapped, err
}

// testWriters increments the epoch of a record from concurrent writers whose responses are
// lost at random. No increment is lost or executed twice, and the bucket holds each commit.
func testWriters(t *testing.T, open func(t *testing.T) publish.Arbiter) {
	const writers, updates = 4, 10
	b, rng := NewBucket(t), testseed.Rand(t)
	var mu sync.Mutex
	choose := func() int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(6)
	}
	var done, lost atomic.Uint64
	var running sync.WaitGroup
	for range writers {
		a := open(t)
		running.Go(func() {
			log, err := publish.OpenLog(t.Context(), publish.WithArbiter(b, lossy{a, choose}), time.Now)
			if err != nil {
				t.Error(err)
				return
			}
			for range updates {
				_, err := log.Update(t.Context(), RaiseEpoch)
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, errLost):
					lost.Add(1) // it was committed, or another commit was
				default:
					t.Errorf("%+v", err)
				}
			}
		})
	}
	running.Wait()
	log, err := publish.OpenLog(t.Context(), publish.WithArbiter(b, open(t)), time.Now)
	require.NoError(t, err)
	before, err := log.Load(t.Context())
	require.NoError(t, err)
	after, err := log.Update(t.Context(), RaiseEpoch)
	require.NoError(t, err)
	require.LessOrEqual(t, after.Epoch-before.Epoch, uint64(2), "at most one commit was not in the bucket")
	require.GreaterOrEqual(t, after.Epoch, done.Load()+1)
	require.LessOrEqual(t, after.Epoch, done.Load()+lost.Load()+1)
}

// RaiseEpoch is a change of a record that tests count.
func RaiseEpoch(r publish.Record) (publish.Record, error) {
	r.Format = 1
	r.Epoch++
	return r, nil
}
