package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"
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
func TestFlipBit(t *testing.T) {
	s, err := store.New(chance.New(1))
	require.NoError(t, err)
	name, err := s.FlipBit(t.Context())
	require.NoError(t, err)
	require.Empty(t, name)
	before := []byte("content of an object")
	require.NoError(t, s.Objects().Put(t.Context(), "a/b", bytes.NewReader(before), int64(len(before))))
	name, err = s.FlipBit(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a/b", name)
	body, err := s.Objects().Get(t.Context(), name, 0, -1)
	require.NoError(t, err)
	after, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	flipped := 0
	for i := range before {
		flipped += bits.OnesCount8(before[i] ^ after[i])
	}
	require.Equal(t, 1, flipped)
}

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

// Each object of a list is seen once, in order, although pages break off.
func TestBrokenLists(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprintf("object/%02d", i))
			require.NoError(t, c.Put(t.Context(), want[i], bytes.NewReader(nil), 0))
		}
		end := s.Fail(0, 0.7, 0, "list")
		for range 20 {
			var got []string
			for info, err := range c.List(t.Context(), "object/", "") {
				require.NoError(t, err)
				got = append(got, info.Name)
			}
			require.Equal(t, want, got)
		}
		end()
		require.Greater(t, s.Requests("list"), 25)
		require.Equal(t, 50, s.Requests("put"))
	})
}

// A Get continues where its response broke off or stalled.
func TestBrokenGets(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		want := bytes.Repeat([]byte("0123456789"), 100_000)
		require.NoError(t, c.Put(t.Context(), "object", bytes.NewReader(want), int64(len(want))))
		end := s.Fail(0, 0.8, 0, "get")
		for range 20 {
			got, err := bucket.ReadAll(t.Context(), c, "object", 1<<20)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		}
		end()
		require.Greater(t, s.Requests("get"), 25)
	})
}

// A lying store inverts a bit of files and manifests, and of nothing else.
func TestLie(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		want := bytes.Repeat([]byte("0123456789"), 1000)
		names := []string{"file/1", "manifest/1", "commit/1"}
		for _, name := range names {
			require.NoError(t, c.Put(t.Context(), name, bytes.NewReader(want), int64(len(want))))
		}
		end := s.Lie(1)
		for _, name := range names {
			got, err := bucket.ReadAll(t.Context(), c, name, 1<<20)
			require.NoError(t, err)
			flipped := 0
			for i := range want {
				flipped += bits.OnesCount8(want[i] ^ got[i])
			}
			require.Equal(t, map[string]int{"file/1": 1, "manifest/1": 1}[name], flipped, name)
		}
		end()
		got, err := bucket.ReadAll(t.Context(), c, "file/1", 1<<20)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// Failures is the most failed requests of a host within a window.
func TestFailures(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		end := s.Refuse(bucket.ErrDenied)
		for _, n := range []int{3, 5, 2} {
			for range n {
				_, err := c.Head(t.Context(), "a")
				require.ErrorIs(t, err, bucket.ErrDenied)
			}
			time.Sleep(store.FailuresWindow)
		}
		end()
		require.Equal(t, 5, s.Failures("server-1"))
		require.Zero(t, s.Failures("server-2"))
	})
}

func TestRefusedRequests(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		for _, refused := range []error{bucket.ErrDenied, bucket.ErrNoBucket, bucket.ErrClockSkew} {
			end, before := s.Refuse(refused), s.Requests("head")
			_, err := c.Head(t.Context(), "a")
			require.ErrorIs(t, err, refused)
			require.Equal(t, before+1, s.Requests("head"), "it is not repeated")
			end()
		}
		_, err := c.Head(t.Context(), "a")
		require.ErrorIs(t, err, bucket.ErrNotExist)
	})
}

// A late Put creates its object after the client has given up, unless another Put was first.
func TestLatePuts(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := newStore(t)
		view := s.For("server-2", func() bool { return true })
		end := s.LatePuts(1)
		for _, name := range []string{"late", "lost"} {
			require.Error(t, view.Put(t.Context(), name, strings.NewReader("first"), 5))
			_, err := c.Head(t.Context(), name)
			require.ErrorIs(t, err, bucket.ErrNotExist)
			end()
			if name == "lost" {
				require.NoError(t, c.Put(t.Context(), name, strings.NewReader("second"), 6))
			}
			time.Sleep(20 * time.Second)
			got, err := bucket.ReadAll(t.Context(), s.Objects(), name, 100)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"late": "first", "lost": "second"}[name], string(got))
			end = s.LatePuts(1)
		}
		end()
	})
}

// A Put whose context ended may have been executed.
func TestPutWithoutResponse(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		view, executed := s.For("server-1", func() bool { return true }), 0
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			require.ErrorIs(t, view.Put(ctx, fmt.Sprint(i), strings.NewReader("text"), 4), context.DeadlineExceeded)
			cancel()
			if info, err := s.Objects().Head(t.Context(), fmt.Sprint(i)); err == nil {
				require.Equal(t, int64(4), info.Size)
				executed++
			}
		}
		require.InDelta(t, 50, executed, 40)
	})
}
