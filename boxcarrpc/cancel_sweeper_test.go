package boxcarrpc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// A call that waits together with others notices its deadline at once, near or far, and its
// cancellation at most two sweeps later.
func TestContextEndsDuringConcurrentCalls(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration
		cancel   bool
		late     time.Duration
	}{
		"near deadline": {ownReading / 2, false, 0},
		"far deadline":  {10 * ownReading, false, 0},
		"soon cancel":   {ownReading / 2, true, 2 * ownReading},
		"late cancel":   {10 * ownReading, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
				<-ctx.Done()
				return dst, ctx.Err()
			}, nil, func(t *testing.T, s *testServer, l *pipes) {
				p := newPool(t, &PoolOptions{Size: 3, Dialer: l.dial}, "s")
				full(t, p)
				for range 2 { // the sweeper stops between
					begin := func(patience time.Duration, cancelled bool) (context.Context, context.CancelFunc) {
						if !cancelled {
							return context.WithTimeout(t.Context(), patience)
						}
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(patience, cancel)
						return ctx, cancel
					}
					var wg sync.WaitGroup
					start := time.Now()
					for range 3 {
						wg.Go(func() {
							ctx, cancel := begin(c.patience, c.cancel)
							defer cancel()
							_, err := p.Call(ctx, "m", nil, nil)
							// At the deadline the server's response may arrive before this
							// context has ended.
							want := context.DeadlineExceeded
							if c.cancel {
								want = context.Canceled
							}
							require.ErrorIs(t, err, want)
							require.LessOrEqual(t, time.Since(start), c.patience+c.late)
						})
					}
					wg.Wait()
					time.Sleep(2 * sweeperIdleSweeps * ownReading)
					synctest.Wait()
					require.False(t, p.calls.sweeper.running.Load())
					require.Zero(t, p.Stats().Busy)
				}
			})
		})
	}
}

// Responses are written to the capacity of dst while they arrive, but not after the call
// has ended because of a cancellation or a failed connection.
func TestNothingIsWrittenToDstAfterTheCall(t *testing.T) {
	s := serve(t, func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return append(dst, make([]byte, 200<<10)...), nil
	}, nil)
	p := newPool(t, &PoolOptions{Size: 4, Methods: idempotent}, s.address)
	rng := testseed.Rand(t)
	var ends, successes atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		delays := make([]time.Duration, 200)
		for i := range delays {
			delays[i] = time.Duration(rng.IntN(2000)) * time.Microsecond
		}
		wg.Go(func() {
			dst := make([]byte, 256<<10)
			for _, delay := range delays {
				ctx, cancel := context.WithTimeout(t.Context(), delay)
				out, err := p.Call(ctx, "m", []byte("x"), dst[:10])
				if err == nil {
					successes.Add(1)
					if len(out) != 10+200<<10 {
						t.Errorf("%d bytes", len(out))
					}
				} else {
					ends.Add(1)
				}
				cancel()
				for i := range dst { // the race detector sees other writers
					dst[i] = 1
				}
			}
		})
	}
	var broken sync.WaitGroup
	stop := make(chan struct{})
	broken.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			s.mu.Lock()
			for c := range s.mu.conns {
				c.conn.Close()
			}
			s.mu.Unlock()
		}
	})
	wg.Wait()
	close(stop)
	broken.Wait()
	require.NotZero(t, ends.Load())
	until(t, "nothing is held", func() bool { return p.members.buffers.used.Load() == 0 })
	t.Log(successes.Load(), "succeeded")
}

// A queued request may be sent after its call was cancelled: it counts as processed.
func TestACancelledRequestThatWaitsToBeSentMayBeProcessed(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		defer l.Close()
		p := newPoolOf(t, &PoolOptions{Size: 2, Dialer: l.dial}, discovery.Static("s"))
		conn, err := l.Accept()
		require.NoError(t, err)
		defer conn.Close()
		c := newRaw(t, conn)
		require.Equal(t, wire.TypeHello, c.next().Type)
		c.send(wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 2}))
		for lane := range uint32(2) {
			require.Equal(t, wire.TypeLease, c.next().Type)
			c.send(wire.AppendSlot(nil, wire.TypeGrant, lane, lane))
		}
		full(t, p)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = p.Call(t.Context(), "first", nil, nil) })
		synctest.Wait() // it is being written, and the peer does not read
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := p.Call(ctx, "second", nil, nil)
			ended <- err
		}()
		synctest.Wait()
		cancel()
		var e *Error
		require.ErrorAs(t, <-ended, &e)
		require.Equal(t, CodeCanceled, e.Code)
		require.True(t, e.Processed)
		for _, want := range []string{"first", "second"} {
			_, method, _, err := c.next().Request()
			require.NoError(t, err)
			require.Equal(t, want, string(method))
		}
		conn.Close()
		wg.Wait()
	})
}
