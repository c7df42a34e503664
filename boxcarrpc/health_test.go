package boxcarrpc

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sick makes the handlers of a cluster in which one server fails in a chosen way while `is`
// is set.
type sick struct {
	server int
	does   Handler
	is     atomic.Bool
}

func (x *sick) handler(server int) Handler {
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		if server == x.server && x.is.Load() {
			return x.does(ctx, method, request, dst)
		}
		time.Sleep(time.Millisecond)
		return append(dst, request...), nil
	}
}

func failAtOnce(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
	return dst, &Error{Code: CodeInternal, Message: "the disk is gone", Processed: true}
}

func panics(context.Context, string, []byte, []byte) ([]byte, error) { panic("as asked") }

func hangs(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
	<-ctx.Done()
	return dst, ctx.Err()
}

// A server that starts to fail all requests, at once, by panics or by not answering in
// time, is ejected after a few calls, is tried from time to time, and gets its share again
// when it recovers.
func TestFailingServerIsEjected(t *testing.T) {
	for name, does := range map[string]Handler{"errors": failAtOnce, "panics": panics, "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			x := &sick{server: 1, does: does}
			withVirtualCluster(t, 5, x.handler, nil, func(t *testing.T, w *virtualCluster) {
				p := w.pool(t, &PoolOptions{Size: 15})
				call := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					_, err := p.Call(ctx, "m", nil, nil)
					return err
				}
				for range 100 {
					require.NoError(t, call())
				}
				time.Sleep(15 * time.Second) // the pool has leased all
				x.is.Store(true)
				var failed int
				start := time.Now()
				for time.Since(start) < 30*time.Second {
					if call() != nil {
						failed++
					}
				}
				// Six, those of its slots, and a trial after pauses of 1, 2, 4, 8 and 16 s,
				// halved at random.
				require.LessOrEqual(t, failed, 6+3+8)
				require.GreaterOrEqual(t, failed, 6)
				x.is.Store(false)
				time.Sleep(2 * time.Minute)
				before := w.servers[1].Stats().Requests
				for range 500 {
					require.NoError(t, call())
				}
				require.Greater(t, w.servers[1].Stats().Requests-before, uint64(20))
				require.Zero(t, p.Stats().Ejected)
			})
		})
	}
}

// A new server is checked before calls use it, and so is one that failed; no call fails.
func TestNoCallGoesToAServerThatFailsItsCheck(t *testing.T) {
	var calls, checks atomic.Int32
	x := &sick{server: 2, does: func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		if method == "m" {
			calls.Add(1)
		} else {
			checks.Add(1)
		}
		return failAtOnce(ctx, method, request, dst)
	}}
	x.is.Store(true)
	withVirtualCluster(t, 4, x.handler, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 8, HealthMethod: "health", HealthInterval: 10 * time.Second})
		for range 20_000 { // 20 s
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		}
		require.Zero(t, calls.Load())
		require.Equal(t, 1, p.Stats().Ejected)
		// Checked with pauses of up to a minute for an hour.
		require.True(t, checks.Load() >= 40 && checks.Load() <= 130, "%d", checks.Load())
		x.is.Store(false)
		time.Sleep(2 * time.Minute)
		require.Zero(t, p.Stats().Ejected)
		before := w.servers[2].Stats().Requests
		for range 100 {
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		}
		require.Greater(t, w.servers[2].Stats().Requests, before+10)
		x.is.Store(true)
		time.Sleep(20 * time.Second)
		checked := checks.Load()
		for range 100 { // without calls, the checks have noticed the recovery
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		}
		require.NotZero(t, checked)
	})
}
