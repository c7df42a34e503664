package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"

	"github.com/stretchr/testify/require"
)

// slowBackend takes a second for each request and counts those in flight.
type slowBackend struct {
	Bucket
	err              func() error
	inFlight, most   atomic.Int64
	bytes, mostBytes atomic.Int64
}

func newSlowBackend(t *testing.T) *slowBackend {
	t.Helper()
	d, err := OpenDir(vfs.NewMem(), "bucket")
	require.NoError(t, err)
	return &slowBackend{Bucket: d, err: func() error { return nil }}
}

func (s *slowBackend) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	raise(&s.most, s.inFlight.Add(1))
	raise(&s.mostBytes, s.bytes.Add(size))
	defer s.inFlight.Add(-1)
	defer s.bytes.Add(-size)
	time.Sleep(time.Second)
	if err := s.err(); err != nil {
		return err
	}
	return s.Bucket.Put(ctx, name, body, size)
}

func raise(most *atomic.Int64, to int64) {
	for old := most.Load(); to > old && !most.CompareAndSwap(old, to); old = most.Load() {
	}
}

// puts numbers the objects of putConcurrently.
var puts atomic.Int64

func putConcurrently(t *testing.T, c *Client, n int, size int64) {
	t.Helper()
	var writers sync.WaitGroup
	for range n {
		writers.Go(func() {
			err := c.Put(t.Context(), fmt.Sprintf("object/%d", puts.Add(1)), strings.NewReader(strings.Repeat("y", int(size))), size)
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		backend := newSlowBackend(t)
		c, err := NewClient(backend, Options{MaxRequests: 4})
		require.NoError(t, err)
		putConcurrently(t, c, 40, 1)
		require.EqualValues(t, 4, backend.most.Load())
		require.Equal(t, Stats{Operations: c.Stats().Operations, Concurrency: 4}, c.Stats())
	})
}

func TestBytesInFlightAreBounded(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		backend := newSlowBackend(t)
		c, err := NewClient(backend, Options{MaxRequests: 100, MaxBytes: 1000})
		require.NoError(t, err)
		putConcurrently(t, c, 40, 300)
		require.EqualValues(t, 900, backend.mostBytes.Load())
		putConcurrently(t, c, 1, 5000) // a larger object is sent alone
	})
}

func TestSlowDownLowersTheConcurrency(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		backend := newSlowBackend(t)
		backend.err = func() error {
			if backend.inFlight.Load() > 3 {
				return &temporaryError{error: errors.New("503"), slowDown: true}
			}
			return nil
		}
		c, err := NewClient(backend, Options{MaxRequests: 16, Timeout: time.Hour})
		require.NoError(t, err)
		putConcurrently(t, c, 200, 1)
		stats := c.Stats()
		require.Positive(t, stats.SlowDowns)
		require.Less(t, stats.SlowDowns, int64(150), "the client learns what the store can take")
		require.LessOrEqual(t, stats.Concurrency, 8)

		backend.err = func() error { return nil }
		putConcurrently(t, c, 300, 1)
		require.Equal(t, 16, c.Stats().Concurrency, "the concurrency recovers")
	})
}

func TestTimeoutBoundsAllAttempts(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		backend := newSlowBackend(t)
		backend.err = func() error { return &temporaryError{error: errors.New("status 500")} }
		c, err := NewClient(backend, Options{Timeout: time.Minute})
		require.NoError(t, err)
		begin := time.Now()
		err = c.Put(t.Context(), "a", strings.NewReader(""), 0)
		require.ErrorContains(t, err, "status 500")
		require.ErrorContains(t, err, "given up after 1m0s")
		require.InDelta(t, time.Minute, time.Since(begin), float64(11*time.Second))
		put := c.Stats().Operations[opPut]
		require.Equal(t, put.Requests, put.Retries+1)
		require.EqualValues(t, 1, put.Failures)
	})
}

func TestCanceledWaitLeavesTheQueue(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newLimiter(2, 100)
		large, err := l.acquire(t.Context(), 90)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		waits.Go(func() {
			_, err := l.acquire(ctx, 50)
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		waits.Go(func() {
			small, err := l.acquire(t.Context(), 10)
			if err != nil {
				t.Error(err)
			}
			l.release(small)
		})
		synctest.Wait()
		cancel() // the small request behind the canceled one fits now
		waits.Wait()
		l.release(large)
		require.Zero(t, l.mu.requests)
		require.Zero(t, l.mu.bytes)
		require.Zero(t, l.mu.waiting.Len())
	})
}

// stuckBackend sends some bytes and then nothing until the context ends.
type stuckBackend struct {
	Bucket
	stuck atomic.Int64 // requests to come that get stuck
}

type stuckBody struct {
	ctx   context.Context
	first io.Reader
}

func (b *stuckBody) Read(p []byte) (int, error) {
	if n, err := b.first.Read(p); err == nil {
		return n, nil
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b *stuckBody) Close() error { return nil }

func (s *stuckBackend) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Bucket.Get(ctx, name, offset, length)
	if err != nil || s.stuck.Add(-1) < 0 {
		return r, err
	}
	body := &stuckBody{ctx, io.LimitReader(r, 3)}
	return &sizedReader{body, body, r.(*sizedReader).size}, nil
}

func (s *stuckBackend) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if s.stuck.Add(-1) >= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Bucket.Put(ctx, name, body, size)
}

func TestStalledTransfersAreRepeated(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		backend := &stuckBackend{Bucket: newSlowBackend(t).Bucket}
		c, err := NewClient(backend, Options{StallTimeout: 10 * time.Second})
		require.NoError(t, err)
		backend.stuck.Store(2)
		require.NoError(t, c.Put(t.Context(), "a", strings.NewReader("0123456789"), 10))

		backend.stuck.Store(2)
		r, err := c.Get(t.Context(), "a", 0, -1)
		require.NoError(t, err)
		var got []byte
		for p := make([]byte, 2); ; {
			time.Sleep(time.Minute) // a slow reader is not a stalled transfer
			n, err := r.Read(p)
			got = append(got, p[:n]...)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
		}
		require.NoError(t, r.Close())
		require.Equal(t, "0123456789", string(got))
		require.Zero(t, c.Stats().InFlight)
	})
}

func TestGetEndsWithItsContext(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		backend := &stuckBackend{Bucket: newSlowBackend(t).Bucket}
		c, err := NewClient(backend, Options{})
		require.NoError(t, err)
		require.NoError(t, c.Put(t.Context(), "a", strings.NewReader("0123456789"), 10))
		backend.stuck.Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := c.Get(ctx, "a", 0, -1)
		require.NoError(t, err)
		_, err = io.ReadAll(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, r.Close())
		_, err = r.Read(make([]byte, 1))
		require.ErrorContains(t, err, "after its close")
		require.Zero(t, c.Stats().InFlight)
	})
}

// TestEachAttemptIsObserved: that a store hangs is known when the first attempt has failed, not
// when the request is given up.
func TestEachAttemptIsObserved(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var outcomes []string
		started := time.Now()
		backend := &stuckBackend{Bucket: newSlowBackend(t).Bucket}
		c, err := NewClient(backend, Options{StallTimeout: 10 * time.Second, Observe: func(err error) {
			outcomes = append(outcomes, fmt.Sprint(time.Since(started).Truncate(time.Second), " ", errors.Is(err, errStalled)))
		}})
		require.NoError(t, err)
		backend.stuck.Store(1)
		require.NoError(t, c.Put(t.Context(), "a", strings.NewReader("0123456789"), 10))
		require.ErrorIs(t, c.Put(t.Context(), "a", strings.NewReader("0123456789"), 10), ErrExist, "an answer")
		require.Equal(t, []string{"10s true", "10s false", "10s false"}, outcomes)
	})
}
