package boxcarrpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
)

// Requests of one batch, including slow ones, are answered in any order: no quick one waits
// for a slow one.
func TestSlowHandlerInABatchDelaysNoOther(t *testing.T) {
	const lanes = 8
	for name, slow := range map[string][]int{
		"first": {0}, "between": {3}, "last": {7}, "two": {2, 5}, "all but one": {0, 1, 2, 3, 5, 6, 7},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			s := serve(t, func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
				if string(request) == "slow" {
					return g.handler(ctx, method, request, dst)
				}
				return append(dst, request...), nil
			}, nil)
			defer g.release()
			c := dialRaw(t, s.address)
			c.hello()
			c.lease(lanes)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
			answers := func(n int) (payloads []string) {
				for range n {
					_, data, err := c.next().Response()
					require.NoError(t, err)
					payloads = append(payloads, string(data))
				}
				return payloads
			}
			requests := make([]string, lanes)
			for i := range requests {
				requests[i] = "quick"
			}
			for _, i := range slow {
				requests[i] = "slow"
			}
			var batch []byte
			for i, request := range requests {
				batch = wire.AppendRequest(batch, uint32(i), wire.Request{Sequence: 1, Total: uint32(len(request))}, "m", []byte(request))
			}
			c.send(batch)
			require.NotContains(t, answers(lanes-len(slow)), "slow")
			g.release()
			require.NotContains(t, answers(len(slow)), "quick")
		})
	}
}

// A handler that ends its goroutine, as a failed assertion in a test does, costs its slot
// and a worker, but the connection stays.
func TestAHandlerThatEndsItsGoroutineCostsItsSlot(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		switch calls.Add(1) {
		case 1: // in the leader
			runtime.Goexit()
		case 2: // in a worker, because the first has made the method slow
			runtime.Goexit()
		}
		return append(dst, request...), nil
	}, nil)
	p := newPool(t, &PoolOptions{Size: 2}, s.address)
	full(t, p)
	for range 2 {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.Equal(t, CodeInternal, CodeOf(err))
	}
	out, err := p.Call(t.Context(), "m", []byte("x"), nil)
	require.NoError(t, err)
	require.Equal(t, "x", string(out))
	require.Equal(t, uint64(2), s.Stats().Panics)
	require.Equal(t, uint64(2), p.Stats().Lost)
	require.Zero(t, p.Stats().Broken)
	full(t, p)
	require.Equal(t, 2, s.Stats().Slots)
}

func TestASlowMethodGoesToWorkersUntilItIsQuickAgain(t *testing.T) {
	var all methods
	m := all.named([]byte("m"))
	require.True(t, m.quick())
	m.record(quickHandler)
	require.True(t, m.quick())
	for range slowMemory { // each of them alone
		m.record(quickHandler + 1)
		for range slowMemory {
			require.True(t, m.quick())
			m.record(quickHandler)
		}
	}
	m.record(quickHandler + 1)
	for range slowMemory - 1 {
		m.record(quickHandler)
	}
	for range 3 { // the second within slowMemory requests; more do not make it slower
		m.record(quickHandler + 1)
	}
	for range slowMemory {
		require.False(t, m.quick())
		m.record(quickHandler)
	}
	require.True(t, m.quick())
	m.avoid()
	require.False(t, m.quick())
	for range maxScore {
		m.record(quickHandler)
	}
	require.True(t, m.quick())
	require.Same(t, m, all.named([]byte("m")))
	for i := range 2 * maxMethods {
		all.named(fmt.Append(nil, i))
	}
	require.Len(t, all.byName, maxMethods)
	require.False(t, all.named([]byte("one more")).quick())
	require.Same(t, m, all.named([]byte("m")))
}

// freed waits until the read turn of the pool's only transport is free.
func freed(t *testing.T, p *Pool) {
	t.Helper()
	until(t, "the read turn is free", func() bool {
		p.members.mu.Lock()
		defer p.members.mu.Unlock()
		tr := p.members.mu.open[0]
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return !tr.turn.held
	})
}

// A lone caller reads for itself: it notices its deadline at once, and a cancellation when
// its own reading ends.
func TestContextEndsWhileALoneCallerReads(t *testing.T) {
	const patience = ownReading / 2
	for name, c := range map[string]struct {
		begin func(context.Context) (context.Context, context.CancelFunc)
		cause error
		late  time.Duration
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, patience)
		}, context.DeadlineExceeded, 0},
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(patience, cancel)
			return ctx, cancel
		}, context.Canceled, 2 * ownReading},
	} {
		t.Run(name, func(t *testing.T) {
			var stuck atomic.Bool
			proceed := make(chan struct{})
			inBubble(t, func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
				if stuck.Swap(false) {
					<-proceed
				}
				return append(dst, request...), nil
			}, nil, func(t *testing.T, s *testServer, l *pipes) {
				proceed = make(chan struct{}) // made in the bubble
				p := newPool(t, &PoolOptions{Size: 2, Dialer: l.dial}, "s")
				full(t, p)
				_, err := p.Call(t.Context(), "m", nil, nil)
				require.NoError(t, err)
				freed(t, p)
				for p.calls.sweeper.running.Load() { // lone callers do not need the sweeper: it stops
					time.Sleep(ownReading / 3)
					_, err := p.Call(t.Context(), "m", nil, nil)
					require.NoError(t, err)
				}

				stuck.Store(true)
				ctx, cancel := c.begin(t.Context())
				defer cancel()
				dst := make([]byte, 3, 64)
				start := time.Now()
				out, err := p.Call(ctx, "m", []byte("the answer comes too late"), dst)
				require.ErrorIs(t, err, c.cause)
				require.Len(t, out, 3)
				require.LessOrEqual(t, time.Since(start), patience+c.late)
				require.Equal(t, 1, p.Stats().Busy, "the server has not acknowledged")

				out, err = p.Call(t.Context(), "m", []byte("another"), nil)
				require.NoError(t, err, "the other lane is served meanwhile")
				require.Equal(t, "another", string(out))
				close(proceed)
				synctest.Wait()
				require.Zero(t, p.Stats().Busy)
				require.Equal(t, make([]byte, 61), dst[3:64], "dst was written after the call")
			})
		})
	}
}

// An idle pool notices that the server has closed the connection.
func TestAFreeReadTurnIsTakenByTheReader(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 1, Dialer: l.dial}, "s")
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		freed(t, p)
		s.mu.Lock()
		for c := range s.mu.conns {
			c.conn.Close()
		}
		s.mu.Unlock()
		time.Sleep(3 * idleReading)
		synctest.Wait()
		require.Equal(t, uint64(1), p.Stats().Broken)
	})
}

// A tripConn transfers one byte at a time and runs a function at a chosen byte. It writes all bytes
// at once while no function is set.
type tripConn struct {
	net.Conn
	trip *trip
}

type trip struct {
	left atomic.Int64
	pull atomic.Pointer[context.CancelFunc]
}

func (c *trip) arm(left int64, pull context.CancelFunc) {
	c.left.Store(left)
	c.pull.Store(&pull)
	if left == 0 {
		pull()
	}
}

func (c *trip) disarm() { c.pull.Store(nil) }

func (c *trip) step() {
	if pull := c.pull.Load(); pull != nil && c.left.Add(-1) == 0 {
		(*pull)()
	}
}

func (c *tripConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(1, len(b))])
	if n > 0 {
		c.trip.step()
	}
	return n, err
}

func (c *tripConn) Write(b []byte) (n int, err error) {
	if c.trip.pull.Load() == nil {
		return c.Conn.Write(b)
	}
	for n < len(b) && err == nil {
		var one int
		c.trip.step()
		one, err = c.Conn.Write(b[n : n+1])
		n += one
	}
	return n, err
}

// A call is cancelled at every byte of its exchange, alone, so that it reads for itself,
// and with another in flight, so that it does not. The calls after it get their own
// responses.
func TestCancelAtEveryByteOfAnExchange(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("concurrent=%v", beside), func(t *testing.T) {
			g := newGate()
			s := serve(t, func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
				if method == "held" {
					return g.handler(ctx, method, request, dst)
				}
				return append(dst, request...), nil
			}, nil)
			var tr trip
			p := newPool(t, &PoolOptions{Size: 3, MaxWait: time.Minute, SilenceTimeout: time.Minute, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				var d net.Dialer
				conn, err := d.DialContext(ctx, "tcp", address)
				return &tripConn{conn, &tr}, err
			}}, s.address)
			full(t, p)
			var wg sync.WaitGroup
			if beside {
				wg.Go(func() { _, _ = p.Call(context.Background(), "held", nil, nil) })
				<-g.entered
			}
			cancelled, bytesOfCall := 0, int64(2*wire.HeaderSize+18+16+1+2*len("request 000"))
			for k := range bytesOfCall + 10 {
				ctx, cancel := context.WithCancel(t.Context())
				tr.arm(k, cancel)
				request := fmt.Appendf(nil, "request %03d", k)
				dst := make([]byte, 0, 64)
				out, err := p.Call(ctx, "m", request, dst)
				failed := err != nil
				if failed {
					require.ErrorIs(t, err, context.Canceled)
					require.Equal(t, "", string(out))
					cancelled++
				} else {
					require.Equal(t, string(request), string(out))
				}
				tr.disarm()
				cancel()
				clear(request) // the caller may reuse it
				next := fmt.Appendf(nil, "after %03d", k)
				out, err = p.Call(t.Context(), "m", next, nil)
				require.NoError(t, err)
				require.Equal(t, string(next), string(out))
				if failed {
					require.Equal(t, make([]byte, 64), dst[:64], "dst was written after the call")
				}
			}
			require.NotZero(t, cancelled)
			g.release()
			wg.Wait()
			until(t, "all lanes are free again", func() bool { return p.Stats().Busy == 0 })
			require.Zero(t, p.Stats().Broken)
			require.Zero(t, p.members.buffers.used.Load())
		})
	}
}

// Messages of megabytes share connections with small ones, in both directions.
func TestBigAndSmallMessagesTogether(t *testing.T) {
	a := newTestTLS(t)
	t.Run("plain", func(t *testing.T) {
		testBigAndSmall(t, nil, &PoolOptions{Size: 12})
	})
	t.Run("TLS", func(t *testing.T) {
		testBigAndSmall(t, &ServerOptions{TLS: a.server(t, tls.NoClientCert)}, &PoolOptions{Size: 12, TLS: a.client(t, "")})
	})
}

func testBigAndSmall(t *testing.T, server *ServerOptions, pool *PoolOptions) {
	s := serve(t, echo, server)
	p := newPool(t, pool, s.address)
	full(t, p)
	var wg sync.WaitGroup
	for caller := range 12 {
		rounds, size := 200, 10
		if caller%3 == 0 {
			rounds, size = 5, 100<<10<<(caller/3)
		}
		wg.Go(func() {
			var dst []byte
			for i := range rounds {
				tag := fmt.Appendf(nil, "%d/%d ", caller, i)
				request := bytes.Repeat(tag, 1+size/len(tag))
				var err error
				dst, err = p.Call(t.Context(), "m", request, dst[:0])
				if err != nil || !bytes.Equal(dst, request) {
					t.Errorf("caller %d, call %d: %v, right answer: %v", caller, i, err, bytes.Equal(dst, request))
					return
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, p.Stats().Transports, 3)
	require.Zero(t, p.members.buffers.used.Load())
}

// The server writes the first responses of a batch while it works on the last: see
// core.Pipeline.
func TestResponsesOfABusyConnectionAreWrittenInParts(t *testing.T) {
	const lanes, batches = 64, 64
	var (
		server atomic.Pointer[Server]
		early  atomic.Int32 // batches with less than half of the responses in memory at the end
	)
	response := len(wire.AppendResponse(nil, 0, 0, wire.Response{}, nil))
	handler := func(_ context.Context, method string, _, dst []byte) ([]byte, error) {
		if s := server.Load(); method == "last" {
			s.mu.Lock()
			defer s.mu.Unlock()
			for c := range s.mu.conns {
				if c.out.Below(lanes / 2 * response) {
					early.Add(1)
				}
			}
		}
		return dst, nil
	}
	s := serve(t, handler, nil)
	server.Store(s.Server)
	c := dialRaw(t, s.address)
	c.hello()
	c.lease(lanes)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	for sequence := range uint32(batches) {
		var batch []byte
		for i := range uint32(lanes) {
			method := "m"
			if i == lanes-1 {
				method = "last"
			}
			batch = wire.AppendRequest(batch, i, wire.Request{Sequence: sequence + 1}, method, nil)
		}
		c.send(batch)
		for range lanes {
			require.Equal(t, wire.TypeResponse, c.next().Type)
		}
	}
	require.Greater(t, early.Load(), int32(batches/2)) // the first quarter is one period of core.Pipeline
}
