package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/store"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
	"docstore/queue/bucket"
)

func newStore(t *testing.T) (*store.Store, *bucket.Client) {
	t.Helper()
	s, err := store.New(chance.New(testseed.Seed(t)))
	require.NoError(t, err)
	return s, client(t, s, "server-1")
}

func client(t *testing.T, s *store.Store, host string) *bucket.Client {
	t.Helper()
	c, err := bucket.NewClient(s.For(host, func() bool { return true }), bucket.Options{})
	require.NoError(t, err)
	return c
}

// The store passes the check of real ones, also while requests fail.
func TestCheck(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		findings, err := bucket.Check(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, bucket.Deviations(findings))
		require.Positive(t, s.Requests("put"))
	})
}

// Of several creations of an object one succeeds, and objects are whole, while requests fail and
// responses are lost.
func TestFailingRequests(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		end := s.Fail(0.1, 0.1, 0.1)
		var created atomic.Int64
		var writers sync.WaitGroup
		for w := range 3 {
			c := client(t, s, fmt.Sprint("host-", w))
			writers.Go(func() {
				for i := range 20 {
					name, body := fmt.Sprint("object/", i), bytes.Repeat([]byte{byte(w)}, 10_000)
					err := c.Put(t.Context(), name, bytes.NewReader(body), int64(len(body)))
					if err == nil {
						created.Add(1)
					} else if !errors.Is(err, bucket.ErrExist) {
						t.Error(err)
					}
					got, err := bucket.ReadAll(t.Context(), c, name, 1<<20)
					if err != nil || len(got) != len(body) || bytes.Count(got, got[:1]) != len(got) {
						t.Errorf("object of %d bytes: %v", len(got), err)
					}
				}
			})
		}
		writers.Wait()
		require.LessOrEqual(t, created.Load(), int64(20))
		require.Positive(t, created.Load())
		end()
	})
}

func TestAwayAndSlow(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		for _, fault := range []func() func(){s.Away, s.Hang} {
			end := fault()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := c.Head(ctx, "a")
			cancel()
			require.Error(t, err)
			require.NotErrorIs(t, err, bucket.ErrNotExist)
			end()
			_, err = c.Head(t.Context(), "a")
			require.ErrorIs(t, err, bucket.ErrNotExist)
		}
		end, start := s.Slow(time.Second), time.Now()
		_, err := c.Head(t.Context(), "a")
		require.ErrorIs(t, err, bucket.ErrNotExist)
		require.Greater(t, time.Since(start), time.Second)
		end()
		unreachable, err := bucket.NewClient(s.For("x", func() bool { return false }), bucket.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = unreachable.Head(ctx, "a")
		require.NotErrorIs(t, err, bucket.ErrNotExist)
	})
}
