package boxcarrpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
)

func TestShutdownLetsRequestsInFlightFinish(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 2}, s.address)
	full(t, p)
	answered := make(chan error, 1)
	go func() {
		out, err := p.Call(context.Background(), "m", []byte("x"), nil)
		if string(out) != "x" && err == nil {
			t.Errorf("%q", out)
		}
		answered <- err
	}()
	<-g.entered
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	until(t, "the client has given back its free slot", func() bool { return s.Stats().Slots == 1 })
	select {
	case <-down:
		t.Fatal("a request is in flight")
	default:
	}
	g.release()
	require.NoError(t, <-answered)
	require.NoError(t, <-down)
	require.Zero(t, p.Stats().Broken, "a drained connection did not break")
	require.Equal(t, ErrServerClosed, <-s.ended)
	s.ended <- ErrServerClosed
}

func TestShutdownGivesUpWithItsContext(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 1}, s.address)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Call(context.Background(), "m", nil, nil)
		ended <- err
	}()
	<-g.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	require.NoError(t, s.Close())
	require.Equal(t, CodeUnavailable, CodeOf(<-ended))
}

// A draining server refuses requests that cross its DRAIN as not processed.
func TestADrainingServerRefusesNewRequests(t *testing.T) {
	g := newGate()
	defer g.release()
	s := serve(t, g.handler, nil)
	c := dialRaw(t, s.address)
	c.hello()
	second := wire.AppendSlot(nil, wire.TypeLease, 1, wire.NoSlot)
	c.send(lease, second, request)
	require.Equal(t, wire.TypeGrant, c.next().Type)
	require.Equal(t, wire.TypeGrant, c.next().Type)
	<-g.entered
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	require.Equal(t, wire.TypeGoAway, c.next().Type)
	c.send(wire.AppendRequest(nil, 1, wire.Request{Sequence: 9}, "m", nil))
	f := c.next()
	require.Equal(t, wire.TypeResponse, f.Type)
	require.Zero(t, f.Flags&wire.FlagProcessed)
	r, _, err := f.Response()
	require.NoError(t, err)
	require.Equal(t, uint32(CodeUnavailable), r.Code)
	c.send(wire.AppendSlot(nil, wire.TypeLease, 2, wire.NoSlot))
	require.Equal(t, wire.TypeDeny, c.next().Type)
	g.release()
	require.Equal(t, wire.TypeResponse, c.next().Type)
	c.ends()
	require.NoError(t, <-down)
}

func TestADrainedConnectionIsClosedAfterAGrace(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		synctest.Wait() // the server has sent its HELLO
		start := time.Now()
		go func() { _ = s.Shutdown(context.Background()) }()
		require.Equal(t, wire.TypeGoAway, c.next().Type)
		for err == nil { // a client that keeps sending
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
			if _, err = conn.Write(wire.AppendPing(nil, wire.TypePing, 1)); err == nil {
				_, err = c.in.Next()
			}
		}
		require.InDelta(t, drainGrace, time.Since(start), float64(20*time.Millisecond))
	})
}

// A rolling restart of all servers, twice, under load: no call fails, idempotent or not.
func TestARollingRestartFailsNoCall(t *testing.T) {
	servers := []*testServer{serve(t, echo, nil), serve(t, echo, nil), serve(t, echo, nil)}
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	p := newPool(t, &PoolOptions{Size: 9}, addresses...)
	full(t, p)
	var stop atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for !stop.Load() {
				if _, err := p.Call(context.Background(), "not idempotent", []byte("x"), nil); err != nil {
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	for i := range 6 {
		s := servers[i%3]
		require.NoError(t, s.Shutdown(t.Context()))
		n := calls.Load()
		until(t, "more calls have succeeded", func() bool { return calls.Load() > n+100 })
		ln, err := net.Listen("tcp", s.address)
		require.NoError(t, err)
		servers[i%3] = serveOn(t, ln, echo, nil)
		s = servers[i%3]
		until(t, "the server is used again", func() bool { return s.Stats().Requests > 10 })
	}
	stop.Store(true)
	wg.Wait()
}
