package boxcarrpc

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const hedgeAfter = 20 * time.Millisecond

var hedged = map[string]Method{"m": {Idempotent: true, HedgeAfter: hedgeAfter}}

// A hedged call is answered by the second server as soon as it is sent there, and the first
// server only sees a cancelled request.
func TestAHedgeAnswersForASlowServer(t *testing.T) {
	var cancelled atomic.Int32
	var slow atomic.Int32 // index of the slow server plus one
	handler := func(server int) Handler {
		return func(ctx context.Context, _ string, request, dst []byte) ([]byte, error) {
			if slow.CompareAndSwap(0, int32(server)+1) || slow.Load() == int32(server)+1 {
				<-ctx.Done()
				cancelled.Add(1)
				return dst, ctx.Err()
			}
			return append(append(dst, request...), byte('0'+server)), nil
		}
	}
	withVirtualCluster(t, 2, handler, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 4, Methods: hedged})
		for _, slowServer := range []int32{1, 2} {
			slow.Store(slowServer)
			quick := byte('0' + 2 - slowServer)
			for range 20 { // about half of them use
				start := time.Now()
				given := CallInfo{Metadata: Metadata(nil).Append("key", "value"), Hedge: &CallHedge{After: hedgeAfter, Allow: func() bool { return true }}, Avoid: []*Peer{nil}}
				info := given
				out, err := p.CallWith(WithBatch(t.Context()), "m", []byte("x"), []byte("dst "), &info)
				took := time.Since(start)
				require.Equal(t, given.Metadata, info.Metadata)
				require.Same(t, given.Hedge, info.Hedge)
				require.Equal(t, given.Avoid, info.Avoid)
				require.Equal(t, 1+int(took/hedgeAfter), info.Attempts)
				require.NotNil(t, info.Server)
				require.NoError(t, err)
				require.Equal(t, "dst x"+string(quick), string(out))
				require.Contains(t, []time.Duration{0, hedgeAfter}, took)
			}
		}
		time.Sleep(time.Second)
		stats := p.Stats()
		require.NotZero(t, stats.HedgesWon)
		require.Equal(t, stats.HedgesWon, stats.Hedges)
		require.Equal(t, int32(stats.Hedges), cancelled.Load())
		require.Zero(t, stats.Busy)
		require.Zero(t, stats.Lost)
	})
}

// The hedging of a call replaces that of its method, and its budget that of the pool.
func TestHedgingOfACall(t *testing.T) {
	handler := func(server int) Handler {
		return func(ctx context.Context, _ string, request, dst []byte) ([]byte, error) {
			if server == 0 {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			return append(dst, byte('0'+server)), ctx.Err()
		}
	}
	methods := map[string]Method{"m": {Idempotent: true}, "once": {}}
	through := func(next Caller) Caller { return next }
	withVirtualCluster(t, 2, handler, nil, func(t *testing.T, w *virtualCluster) {
		for _, x := range []struct {
			method  string
			allowed bool
			hedges  bool
		}{{"m", true, true}, {"m", false, false}, {"once", true, false}} {
			asked := 0
			var p *Pool
			for i := range 400 {
				if i >= 20 && asked > 0 {
					break
				}
				if i%20 == 0 { // calls one after the other use one slot, which may be of the other server
					p = w.pool(t, &PoolOptions{Size: 4, RetryRatio: -1, Methods: methods, Interceptors: []func(Caller) Caller{through}})
				}
				before, start := p.Stats().Hedges, time.Now()
				info := CallInfo{Hedge: &CallHedge{After: hedgeAfter, Allow: func() bool { asked++; return x.allowed }}}
				_, err := p.CallWith(t.Context(), x.method, nil, nil, &info)
				require.NoError(t, err)
				require.Contains(t, []time.Duration{0, hedgeAfter, time.Second}, time.Since(start))
				require.Equal(t, x.hedges && time.Since(start) == hedgeAfter, p.Stats().Hedges > before)
			}
			require.Equal(t, x.method == "m", asked > 0, "%+v", x)
		}
	})
}

// Both servers answer at about the same time with responses of many frames. The caller may
// reuse dst and the request once the call has returned.
func TestNothingIsWrittenToDstAfterAHedgedCall(t *testing.T) {
	answer := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	handler := func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		time.Sleep(time.Millisecond)
		return append(append(dst, request...), answer...), nil
	}
	a, b := serve(t, handler, nil), serve(t, handler, nil)
	p := newPool(t, &PoolOptions{Size: 16, RetryRatio: 100, Methods: map[string]Method{
		"m": {Idempotent: true, HedgeAfter: time.Millisecond},
	}}, a.address, b.address)
	full(t, p)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			dst := make([]byte, 0, 2*len(answer))
			request := bytes.Repeat([]byte{byte(i)}, 100_000)
			for range 50 {
				out, err := p.Call(context.Background(), "m", request, dst)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(out[:len(request)], request) || !bytes.Equal(out[len(request):], answer) {
					t.Error("response of another call, or a mixture")
					return
				}
				clear(dst[:cap(dst)]) // a late write is a data race
				clear(request)
				for j := range request {
					request[j] = byte(i)
				}
			}
		})
	}
	wg.Wait()
	require.NotZero(t, p.Stats().Hedges)
}

// Hedges use the retry budget: when all servers are slow, few are sent.
func TestHedgesAreWithinTheRetryBudget(t *testing.T) {
	slow := func(int) Handler {
		return func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
			time.Sleep(2 * hedgeAfter)
			return append(dst, request...), nil
		}
	}
	withVirtualCluster(t, 3, slow, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 12, Methods: hedged, RetryRatio: 0.1})
		const calls = 1000
		start := time.Now()
		for range calls {
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		}
		stats := p.Stats()
		require.InDelta(t, 12+0.1*calls+retriesPerSecond*time.Since(start).Seconds(), stats.Hedges, 2)
		require.Zero(t, stats.HedgesWon)
	})
}

// If either attempt may have been processed, so may the call.
func TestFailedHedgedCallMayHaveBeenProcessed(t *testing.T) {
	handler := func(server int) Handler {
		return func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
			time.Sleep(2 * hedgeAfter)
			if server == 0 {
				return dst, &Error{Code: CodeUnavailable}
			}
			return dst, NotProcessed(&Error{Code: CodeUnavailable})
		}
	}
	withVirtualCluster(t, 2, handler, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 4, Methods: hedged, MaxRetries: -1})
		for range 4 {
			_, err := p.Call(t.Context(), "m", nil, nil)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, CodeUnavailable, e.Code)
			require.True(t, e.Processed)
		}
		require.Equal(t, uint64(4), p.Stats().Hedges)
	})
}

// An error that may not be retried is an answer: the call ends with it at once, whichever
// attempt has it, although the other attempt hangs until the deadline.
func TestAFinalErrorAnswersAHedgedCall(t *testing.T) {
	const takes = 200 * time.Millisecond
	for name, answers := range map[string]int32{"first attempt": 1, "hedge": 2} {
		t.Run(name, func(t *testing.T) {
			var attempt, cancelled atomic.Int32
			handler := func(int) Handler {
				return func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
					if attempt.Add(1) == answers {
						time.Sleep(takes)
						return dst, &Error{Code: CodeNotFound, Message: "no document"}
					}
					<-ctx.Done()
					cancelled.Add(1)
					return dst, ctx.Err()
				}
			}
			withVirtualCluster(t, 2, handler, nil, func(t *testing.T, w *virtualCluster) {
				p := w.pool(t, &PoolOptions{Size: 4, Methods: hedged})
				const calls = 10
				for range calls {
					attempt.Store(0)
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					start := time.Now()
					var info CallInfo
					out, err := p.CallWith(ctx, "m", nil, []byte("dst"), &info)
					cancel()
					require.Equal(t, CodeNotFound, CodeOf(err), "%v", err)
					require.ErrorContains(t, err, "no document")
					require.Equal(t, "dst", string(out))
					require.Equal(t, takes+time.Duration(answers-1)*hedgeAfter, time.Since(start))
					require.Equal(t, 2, info.Attempts)
				}
				time.Sleep(time.Second)
				stats := p.Stats()
				require.Equal(t, uint64(calls), stats.Hedges)
				require.Equal(t, uint64(calls)*uint64(answers-1), stats.HedgesWon)
				require.Equal(t, int32(calls), cancelled.Load())
				require.Zero(t, stats.Busy)
			})
		})
	}
}

// While the hedge runs, a retry goes to a third server, or again to the first one, but never
// to that of the hedge.
func TestARetryAvoidsTheServerOfTheHedge(t *testing.T) {
	const takes = 200 * time.Millisecond
	for _, servers := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			var attempt atomic.Int32
			var servedBy [4]atomic.Int32 // the server of each attempt
			handler := func(server int) Handler {
				return func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
					n := attempt.Add(1)
					servedBy[n].Store(int32(server))
					switch n {
					case 1:
						time.Sleep(2 * hedgeAfter)
						return dst, &Error{Code: CodeUnavailable}
					case 2:
						select {
						case <-time.After(takes):
						case <-ctx.Done():
						}
					}
					return append(dst, "answer"...), ctx.Err()
				}
			}
			withVirtualCluster(t, servers, handler, nil, func(t *testing.T, w *virtualCluster) {
				p := w.pool(t, &PoolOptions{Size: 12, Methods: hedged, RetryRatio: 10})
				for range 20 {
					attempt.Store(0)
					start := time.Now()
					var info CallInfo
					out, err := p.CallWith(t.Context(), "m", nil, nil, &info)
					require.NoError(t, err)
					require.Equal(t, "answer", string(out))
					require.Equal(t, 2*hedgeAfter, time.Since(start))
					require.Equal(t, 3, info.Attempts)
					first, second, retry := servedBy[1].Load(), servedBy[2].Load(), servedBy[3].Load()
					require.NotEqual(t, second, retry)
					require.Equal(t, servers == 2, first == retry)
					time.Sleep(10 * time.Second) // failures no longer count
				}
			})
		})
	}
}

func TestOnlyIdempotentMethodsAreHedged(t *testing.T) {
	_, err := NewPool(nil, &PoolOptions{Methods: map[string]Method{"pay": {HedgeAfter: time.Second}}})
	require.ErrorContains(t, err, "HedgeAfter of pay")
}
