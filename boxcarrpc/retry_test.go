package boxcarrpc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/core"
)

// If all servers refuse everything they get the calls, a fifth more, and 10 a second.
func TestRetriesAreWithinTheirBudget(t *testing.T) {
	refuse := func(int) Handler {
		return func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
			time.Sleep(time.Millisecond)
			return dst, NotProcessed(errors.New("not here"))
		}
	}
	withVirtualCluster(t, 4, refuse, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 12})
		const calls = 2000
		start := time.Now()
		var unfunded int
		for range calls {
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.Equal(t, CodeUnavailable, CodeOf(err), "the error of the last attempt")
			var e *Error
			require.ErrorAs(t, err, &e)
			require.False(t, e.Processed)
			if e.Message == "no retry" {
				unfunded++
			}
		}
		var handled uint64
		for _, s := range w.servers {
			handled += s.Stats().Requests
		}
		want := 12 + calls*DefaultRetryRatio + retriesPerSecond*time.Since(start).Seconds()
		require.InDelta(t, want, handled-calls, 2)
		require.Equal(t, handled-calls, p.Stats().Retries)
		require.Equal(t, uint64(unfunded), p.Stats().Unfunded)
		require.NotZero(t, unfunded)
	})
}

// A call avoids servers while there are others. This is not a retry.
func TestCallAvoidsServers(t *testing.T) {
	name := func(server int) Handler {
		return func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
			return append(dst, byte('0'+server)), nil
		}
	}
	withVirtualCluster(t, 3, name, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 9, RetryRatio: -1})
		for range 20 {
			var info CallInfo
			var seen []byte
			for range 3 {
				out, err := p.CallWith(t.Context(), "m", nil, nil, &info)
				require.NoError(t, err)
				require.NotContains(t, string(seen), string(out))
				seen = append(seen, out...)
				info.Avoid = append(info.Avoid, info.Server)
			}
			_, err := p.CallWith(t.Context(), "m", nil, nil, &info)
			require.NoError(t, err, "no other server is left")
			time.Sleep(time.Second)
		}
		require.Zero(t, p.Stats().Retries)
		require.Zero(t, p.Stats().Unfunded)
	})
}

// A retry is counted when it is queued. All slots of the only other server are busy, so
// retries wait: as many as the budget allows, and none is sent.
func TestARetryIsCountedWhenItIsQueued(t *testing.T) {
	const budget = 5
	var g *gate // made in the bubble
	handler := func(server int) Handler {
		return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
			if server == 0 {
				return g.handler(ctx, method, request, dst)
			}
			return dst, NotProcessed(errors.New("not here"))
		}
	}
	withVirtualCluster(t, 2, handler, nil, func(t *testing.T, w *virtualCluster) {
		g = newGate()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer g.release()
		p := w.pool(t, &PoolOptions{Size: 20, RetryWait: 10 * time.Second})
		for w.servers[0].Stats().InFlight < w.servers[0].Stats().Slots {
			wg.Go(func() { _, _ = p.Call(t.Context(), "m", nil, nil) })
			time.Sleep(time.Second)
		}
		p.slots.mu.Lock()
		p.slots.mu.retries = core.NewRetryBudget(p.slots.now(), 0, 0, budget)
		p.slots.mu.Unlock()
		refused := w.servers[1].Stats().Requests
		for range budget {
			wg.Go(func() {
				if _, err := p.Call(t.Context(), "m", nil, nil); err != nil {
					t.Error(err) // served when the gate is open
				}
			})
		}
		time.Sleep(time.Second)
		require.Equal(t, budget, p.Stats().Waiting)
		start := time.Now()
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.ErrorIs(t, err, errRetryBudget)
		require.Less(t, time.Since(start), time.Second)
		require.Equal(t, refused+budget+1, w.servers[1].Stats().Requests)
	})
}

// If the first attempt may have been processed and the second certainly was not, the call
// may have been processed.
func TestAFailedRetryDoesNotHideThatTheFirstAttemptMayHaveBeenProcessed(t *testing.T) {
	var s *testServer
	var once sync.Once
	s = serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		first := false
		once.Do(func() { first = true })
		if !first {
			return dst, NotProcessed(errors.New("not begun"))
		}
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for c := range s.mu.conns {
				c.conn.Close()
			}
		}()
		<-ctx.Done()
		return dst, ctx.Err()
	}, nil)
	p := newPool(t, &PoolOptions{Size: 1, MaxRetries: 1, Methods: idempotent}, s.address)
	_, err := p.Call(t.Context(), "m", nil, nil)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "not begun", e.Message)
	require.True(t, e.Processed)
}
