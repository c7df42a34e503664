package boxcarrpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc/budget"
	"docstore/internal/virtualtime"
)

func TestIsBatchPriority(t *testing.T) {
	for priority, want := range map[string]bool{
		"u=7": true, "u=7, i": true, "i,u=7": true, " u=7;a=b": true, "u=1,u=7": true,
		"": false, "u=6": false, "u=3, i": false, "i": false, "u=7,u=3": false, "u=77": false, "u": false, "U=7": false, "x=7": false,
	} {
		require.Equal(t, want, IsBatchPriority(priority), priority)
	}
}

// Three clients overload a server with batch. It refuses none of the interactive requests,
// which are within the reserve, and batch alone uses all but the reserve.
func TestBatchIsRefusedFirst(t *testing.T) {
	const (
		handling = 10 * time.Millisecond
		measured = time.Second
		callers  = 4 // interactive: 400 requests a second
	)
	for name, c := range map[string]struct {
		admission func() budget.Admission
		reason    string
		most      int64         // batch requests in flight
		alone     time.Duration // between two batch requests without others; 0: not limited
	}{
		"in flight": {func() budget.Admission { return budget.Admission{MaxInFlight: 16} }, "in_flight", 12, 0},
		"rate":      {func() budget.Admission { return budget.Admission{Limiter: newLimiter(t, 1000, 40)} }, "rate", 48, time.Millisecond},
		"x/time":    {func() budget.Admission { return budget.Admission{Limiter: rate.NewLimiter(1000, 40)} }, "rate", 48, time.Millisecond},
		"client":    {func() budget.Admission { return budget.Admission{ClientRate: 1000, ClientBurst: 40} }, "client_rate", 48, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			var inFlight, most, served atomic.Int64
			handler := func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
				if IsBatch(ctx) {
					served.Add(1)
					most.Store(max(most.Load(), inFlight.Add(1)))
					defer inFlight.Add(-1)
				}
				time.Sleep(handling)
				return dst, nil
			}
			virtualtime.Test(t, func(t *testing.T) {
				l := newPipes()
				s := serveOn(t, l, handler, &ServerOptions{Admission: c.admission()})
				pool := func() *Pool {
					return newPool(t, &PoolOptions{Size: 16, MaxRetries: -1, Dialer: l.dialFrom("10.0.0.1")}, "s")
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				for range 3 {
					p := pool()
					full(t, p)
					for range 16 {
						wg.Go(func() {
							for ctx.Err() == nil {
								if _, err := p.Call(WithBatch(ctx), "m", nil, nil); err != nil {
									time.Sleep(2 * time.Millisecond)
								}
							}
						})
					}
				}
				interactive := pool()
				full(t, interactive)
				start := time.Now()
				var calls sync.WaitGroup
				for range callers {
					calls.Go(func() {
						for time.Since(start) < measured {
							_, err := interactive.Call(ctx, "m", nil, nil)
							if err != nil {
								t.Errorf("an interactive request: %v", err)
								return
							}
						}
					})
				}
				calls.Wait()
				synctest.Wait() // a refusal is counted in two counters
				stats := s.Stats()
				require.NotZero(t, stats.RefusedBatchBy[c.reason])
				require.Equal(t, stats.RefusedBy, stats.RefusedBatchBy, "no interactive request is refused")
				require.Greater(t, served.Load(), int64(100))

				served.Store(0)
				time.Sleep(measured)
				if c.alone > 0 {
					require.InDelta(t, measured/c.alone, served.Load(), 50, "batch alone has the whole rate")
				}
				require.LessOrEqual(t, most.Load(), c.most)
				if name == "in flight" {
					require.Equal(t, c.most, most.Load())
				}
			})
		})
	}
}

// A refused batch request takes no place of the reserve, even while it is being refused.
func TestRefusedBatchTakesNoPlace(t *testing.T) {
	const limit, reserve = 16, 4
	var counter atomic.Int64
	for range limit - reserve {
		require.True(t, budget.Take(&counter, limit, true))
	}
	var over atomic.Bool
	var refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !over.Load() {
				if budget.Take(&counter, limit, true) {
					t.Error("batch has a place of the reserve")
					return
				}
				refused.Add(1)
			}
		})
	}
	for refused.Load() < 1_000_000 && !t.Failed() {
		for range reserve {
			if !budget.Take(&counter, limit, false) {
				t.Error("an interactive request is refused")
			}
		}
		counter.Add(-reserve)
	}
	over.Store(true)
	wg.Wait()
	require.Equal(t, int64(limit-reserve), counter.Load())
}

// Batch streams leave places to interactive ones.
func TestBatchStreamsLeaveAReserve(t *testing.T) {
	for name, c := range map[string]struct {
		options ServerOptions
		reason  string
	}{
		"server":    {ServerOptions{MaxStreams: 8}, "streams"},
		"in flight": {ServerOptions{Admission: budget.Admission{MaxInFlight: 8}}, "in_flight"},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := streamPool(t, &c.options, nil)
			other := newPool(t, nil, s.address) // with separate streams
			begin := func(ctx context.Context, p *Pool) error {
				stream, err := p.Stream(ctx, "echo", nil)
				require.NoError(t, err)
				t.Cleanup(stream.Close)
				if err := stream.Send(nil); err != nil { // the refusal may have arrived
					return err
				}
				_, err = stream.Receive(nil)
				return err
			}
			for range 6 {
				require.NoError(t, begin(WithBatch(t.Context()), p))
			}
			require.Equal(t, CodeResourceExhausted, CodeOf(begin(WithBatch(t.Context()), p)))
			for range 2 {
				require.NoError(t, begin(t.Context(), other))
			}
			require.Equal(t, CodeResourceExhausted, CodeOf(begin(t.Context(), other)))
			stats := s.Stats()
			require.Equal(t, stats.RefusedBy[c.reason]/2, stats.RefusedBatchBy[c.reason])
		})
	}
}

// A handler's calls have the priority of its request, and metadata of the caller is kept.
func TestPriorityOfCallsOfAHandler(t *testing.T) {
	type seen struct {
		batch    bool
		metadata Metadata
	}
	got := make(chan seen, 1)
	back := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		got <- seen{IsBatch(ctx), MetadataOf(ctx)}
		return dst, nil
	}, &ServerOptions{StreamHandler: func(ctx context.Context, _ string, s *ServerStream) error {
		got <- seen{IsBatch(ctx), s.Metadata()}
		return nil
	}})
	toBack := newPool(t, &PoolOptions{Size: 2}, back.address)
	front := serve(t, func(ctx context.Context, method string, _, dst []byte) ([]byte, error) {
		if method == "stream" {
			stream, err := toBack.Stream(ctx, method, nil)
			if err == nil {
				defer stream.Close()
				_, _ = stream.Receive(nil) // its end
			}
			return dst, err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return toBack.Call(ctx, method, nil, dst)
	}, nil)
	p := newPool(t, &PoolOptions{Size: 2}, front.address)
	batch := Metadata(nil).Append(PriorityKey, BatchPriority)
	for _, method := range []string{"call", "stream"} {
		_, err := p.Call(t.Context(), method, nil, nil)
		require.NoError(t, err)
		require.Equal(t, seen{false, nil}, <-got)
		_, err = p.Call(WithBatch(t.Context()), method, nil, nil)
		require.NoError(t, err)
		require.Equal(t, seen{true, batch}, <-got)
	}

	other := Metadata(nil).Append("k", "v")
	full := Metadata(nil).Append("k", strings.Repeat("v", MaxMetadataBytes-8))
	urgent := Metadata(nil).Append(PriorityKey, "u=1")
	for _, c := range []struct {
		sent, received Metadata
		batch          bool
	}{
		{other, other.Append(PriorityKey, BatchPriority), true},
		{full, full, false},
		{urgent, urgent, false},
		{batch, batch, true},
	} {
		_, err := toBack.CallWith(WithBatch(t.Context()), "call", nil, nil, &CallInfo{Metadata: c.sent})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(seen{c.batch, c.received}), fmt.Sprint(<-got))
	}
}

// Requests of other protocols have a priority too.
func TestAdmitBatch(t *testing.T) {
	s := serve(t, echo, &ServerOptions{Admission: budget.Admission{MaxInFlight: 4}})
	for range 3 {
		_, err := s.Admit(budget.ClientNamed("a"), true)
		require.NoError(t, err)
	}
	_, err := s.Admit(budget.ClientNamed("a"), true)
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	_, err = s.Admit(budget.ClientNamed("a"), false)
	require.NoError(t, err)
	require.Equal(t, uint64(1), s.Stats().RefusedBatchBy["in_flight"])
}
