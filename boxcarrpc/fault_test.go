package boxcarrpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

var idempotent = map[string]Method{"m": {Idempotent: true}}

// A server is killed and restarted repeatedly under load while another one runs: no
// idempotent call fails.
func TestAServerKilledInMidLoadFailsNoIdempotentCall(t *testing.T) {
	slow := func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		time.Sleep(200 * time.Microsecond)
		return append(dst, request...), nil
	}
	stays := serve(t, slow, nil)
	dies := serve(t, slow, nil)
	p := newPool(t, &PoolOptions{Size: 16, Methods: idempotent}, stays.address, dies.address)
	full(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				out, err := p.Call(context.Background(), "m", []byte("x"), nil)
				if err != nil || string(out) != "x" {
					t.Errorf("%q, %v", out, err)
				}
				calls.Add(1)
			}
		})
	}
	for range 5 {
		until(t, "the server is used", func() bool { return dies.Stats().Requests > 20 })
		dies.stop()
		n := calls.Load()
		until(t, "more calls have succeeded", func() bool { return calls.Load() > n+200 })
		ln, err := net.Listen("tcp", dies.address)
		require.NoError(t, err)
		dies = serveOn(t, ln, slow, nil)
	}
	cancel()
	wg.Wait()
	require.NotZero(t, p.Stats().Retries)
	require.NotZero(t, p.Stats().Broken)
}

// While the pool holds no slot, calls wait for the first new one.
func TestCallsOutliveTheLossOfTheOnlyServer(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 4, Methods: idempotent}, s.address)
	full(t, p)
	s.stop()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := p.Call(context.Background(), "m", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "the calls wait", func() bool { return p.Stats().Waiting == 4 })
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, ErrPoolBusy, "no more calls wait than the pool has slots")
	ln, err := net.Listen("tcp", s.address)
	require.NoError(t, err)
	serveOn(t, ln, echo, nil)
	wg.Wait()
}

func TestALostRequestIsRepeatedOnlyIfItsMethodAllows(t *testing.T) {
	var handled atomic.Int32
	kill := make(chan func(), 1)
	s := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		if handled.Add(1) == 1 {
			go (<-kill)()
			<-ctx.Done()
		}
		return dst, ctx.Err()
	}, nil)
	other := serve(t, echo, nil)
	for method, retried := range map[string]bool{"m": true, "not idempotent": false} {
		handled.Store(0)
		p := newPool(t, &PoolOptions{Size: 1, Methods: idempotent, RetryWait: time.Minute}, s.address)
		kill <- func() {
			p.members.follow(discovery.Snapshot{Servers: []discovery.Server{{Address: s.address}, {Address: other.address}}})
			s.mu.Lock()
			defer s.mu.Unlock()
			for c := range s.mu.conns {
				// Close would reset the connection if a LEASE of the pool is unread.
				_ = c.conn.(*net.TCPConn).CloseWrite()
			}
		}
		_, err := p.Call(t.Context(), method, nil, nil)
		if retried {
			require.NoError(t, err)
			require.Equal(t, uint64(1), p.Stats().Retries)
			continue
		}
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, CodeUnavailable, e.Code)
		require.True(t, e.Processed)
		require.ErrorIs(t, err, errClosed)
		require.Zero(t, p.Stats().Retries)
	}
}

func TestRefusedRequestIsRetriedAndTheSlotIsKept(t *testing.T) {
	var refused atomic.Int32
	refuses := serve(t, func(context.Context, string, []byte, []byte) ([]byte, error) {
		refused.Add(1)
		return nil, NotProcessed(errors.New("not here"))
	}, nil)
	works := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 4}, refuses.address, works.address)
	full(t, p)
	until(t, "both have slots", func() bool { return refuses.Stats().Slots == 2 && works.Stats().Slots == 2 })
	for range 200 {
		out, err := p.Call(t.Context(), "not idempotent", []byte("x"), nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(out))
	}
	require.Less(t, refused.Load(), int32(20), "the refusing server ranks last")
	require.Equal(t, 2, refuses.Stats().Slots)
	require.Zero(t, p.Stats().Lost)
}

func TestRetriesAreBounded(t *testing.T) {
	var addresses []string
	var handled atomic.Int32
	for range 6 {
		addresses = append(addresses, serve(t, func(context.Context, string, []byte, []byte) ([]byte, error) {
			handled.Add(1)
			return nil, NotProcessed(errors.New("not here"))
		}, nil).address)
	}
	p := newPool(t, &PoolOptions{Size: 12, MaxRetries: 2}, addresses...)
	full(t, p)
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	require.Equal(t, int32(3), handled.Load())
}

// A stopped server accepts connections and sends nothing.
func TestSilentServerIsDisconnected(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		defer l.Close()
		pings := make(chan uint64, 100)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			c := newRaw(t, conn)
			c.next()
			c.send(wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 10}))
			c.next()
			c.send(wire.AppendSlot(nil, wire.TypeGrant, 0, 0))
			for { // it reads but never answers
				f, err := c.in.Next()
				if err != nil {
					return
				}
				if f.Type == wire.TypePing {
					token, _ := f.Ping()
					pings <- token
				}
			}
		}()
		p, err := NewPool(discovery.Static("s"), &PoolOptions{Size: 1, Dialer: l.dial})
		require.NoError(t, err)
		defer p.Close()
		require.NoError(t, p.WaitReady(t.Context()))
		start := time.Now()
		_, err = p.Call(t.Context(), "m", nil, nil)
		require.ErrorIs(t, err, errSilent)
		require.Equal(t, CodeUnavailable, CodeOf(err))
		silence := time.Since(start)
		require.True(t, silence >= DefaultSilenceTimeout && silence <= DefaultSilenceTimeout*13/10, "%v", silence)
		require.NotEmpty(t, pings, "the connection was pinged")
		require.Equal(t, uint64(1), p.Stats().Lost)
	})
}

func TestASlowHandlerIsNotASilentServer(t *testing.T) {
	inBubble(t, func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		time.Sleep(30 * time.Second)
		return append(dst, "at last"...), nil
	}, nil, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 1, Dialer: l.dial}, "s")
		out, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		require.Equal(t, "at last", string(out))
		require.Zero(t, p.Stats().Broken)
	})
}

func TestKeepAlivesKeepAnIdleConnection(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 2, Dialer: l.dial}, "s")
		time.Sleep(time.Hour)
		require.Zero(t, p.Stats().Broken)
		require.Equal(t, uint64(1), s.Stats().Accepted)
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
	})
}

// A half-open connection: the server's host has disappeared.
func TestHalfOpenIdleConnectionIsDetected(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		var cut atomic.Bool
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if cut.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			conn, err := l.dial(ctx, address)
			return &cutConn{Conn: conn, cut: &cut}, err
		}
		p := newPool(t, &PoolOptions{Size: 1, Dialer: dial}, "s")
		time.Sleep(time.Second)
		cut.Store(true)
		time.Sleep(keepAlive*5/4 + DefaultSilenceTimeout*13/10)
		require.Equal(t, uint64(1), p.Stats().Broken)
		require.Zero(t, p.Stats().Slots)
		time.Sleep(idleTimeout + time.Minute)
		require.Zero(t, s.Stats().Slots, "the server detects it too")
	})
}

// A cutConn discards writes once it is cut.
type cutConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Frames that violate the protocol: the client closes the connection, and the call fails or
// is served by another connection.
func TestProtocolViolationOfServerEndsConnection(t *testing.T) {
	answer := func(sequence, total uint32, data string) []byte {
		return wire.AppendResponse(nil, 0, wire.FlagProcessed, wire.Response{Sequence: sequence, Total: total, Lowest: 1}, []byte(data))
	}
	for name, frames := range map[string][][]byte{
		"garbage":               {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")},
		"wrong sequence":        {answer(7, 0, "")},
		"answer twice":          {answer(1, 2, "ok"), answer(1, 2, "ok")},
		"oversized":             {answer(1, MaxResponseBytes+1, "")},
		"data before response":  {wire.AppendData(nil, 0, 1, []byte("x"))},
		"too much data":         {answer(1, 1, ""), wire.AppendData(nil, 0, 1, []byte("xx"))},
		"a lane never leased":   {wire.AppendResponse(nil, 5, 0, wire.Response{}, nil)},
		"grant unasked":         {wire.AppendSlot(nil, wire.TypeGrant, 0, 1)},
		"deny unasked":          {wire.AppendSlot(nil, wire.TypeDeny, 9, 1)},
		"a client's frame":      {lease},
		"a stream never opened": {wire.AppendHeader(nil, 0, 1, nil)},
		"hello again":           {wire.AppendHello(nil, wire.Hello{})},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, &PoolOptions{Size: 1, MaxRetries: -1}, serveBadly(t, frames))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			out, err := p.Call(ctx, "m", nil, nil)
			if name == "answer twice" && err == nil {
				require.Equal(t, "ok", string(out))
			} else {
				require.Equal(t, CodeUnavailable, CodeOf(err))
			}
			until(t, "the connection is closed", func() bool { return p.Stats().Broken > 0 })
			require.NoError(t, p.Close())
			require.Zero(t, p.members.buffers.used.Load())
		})
	}
}

func TestProtocolViolationOfServerOnStreamEndsConnection(t *testing.T) {
	message := wire.AppendMessage(nil, 0, 1, 0, nil)
	status := wire.AppendStatus(nil, 0, 0, wire.Status{Sequence: 1}, nil)
	for name, frames := range map[string][][]byte{
		"wrong sequence":       {wire.AppendStatus(nil, 0, 0, wire.Status{Sequence: 2}, nil)},
		"wrong number":         {wire.AppendStatus(nil, 1, 0, wire.Status{Sequence: 1}, nil)},
		"status twice":         {status, status},
		"more than the credit": {bytes.Repeat(message, wire.Window/wire.MessageCost(0)+1)},
		"credit without need":  {wire.AppendCredit(nil, 0, 1, 1)},
		"header twice":         {wire.AppendHeader(nil, 0, 1, nil), wire.AppendHeader(nil, 0, 1, nil)},
		"header late":          {message, wire.AppendHeader(nil, 0, 1, nil)},
		"a client's frame":     {wire.AppendSequence(nil, wire.TypeReset, 0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, &PoolOptions{Size: 1}, serveBadly(t, frames))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			st, err := p.Stream(ctx, "m", nil)
			require.NoError(t, err)
			until(t, "the connection is closed", func() bool { return p.Stats().Broken > 0 && p.Stats().Streams == 0 })
			for err == nil {
				_, err = st.Receive(nil)
			}
			if name == "status twice" && errors.Is(err, io.EOF) {
				require.Nil(t, st.Trailer())
			} else {
				require.Equal(t, CodeUnavailable, CodeOf(err))
			}
		})
	}
}

// serveBadly runs a badServer for every connection.
func serveBadly(t *testing.T, frames [][]byte) (address string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { badServer(t, conn, frames) })
		}
	})
	t.Cleanup(func() { // after the pool's
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// badServer grants a slot and answers the first request or stream with the given frames.
func badServer(t *testing.T, conn net.Conn, frames [][]byte) {
	defer conn.Close()
	c := newRaw(t, conn)
	for {
		f, err := c.in.Next()
		if err != nil {
			return
		}
		var out []byte
		switch f.Type {
		case wire.TypeHello:
			out = wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 1, MaxStreams: 2})
		case wire.TypeLease:
			out = wire.AppendSlot(nil, wire.TypeGrant, f.Lane, 0)
		case wire.TypeRequest, wire.TypeOpen:
			out = bytes.Join(frames, nil)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func TestAServerOfAnotherVersionIsNotUsed(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c := newRaw(t, conn)
				c.next()
				c.send(wire.AppendHello(nil, wire.Hello{Version: 9, OldestVersion: 7, MaxLanes: 9}))
				conn.Close()
			}
		}()
		p, err := NewPool(discovery.Static("s"), &PoolOptions{Dialer: l.dial})
		require.NoError(t, err)
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Call(ctx, "m", nil, nil)
		require.ErrorIs(t, err, ErrNoServer)
		require.Contains(t, p.view().Servers[0].State, "the peer speaks 7 to 9, this side 0 to 0")
	})
}

// A server that fails every request fast always has the lowest slot free.
func TestServerThatFailsFastDoesNotAttractLoad(t *testing.T) {
	good := serve(t, echo, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	var swallowed atomic.Int32
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				c := newRaw(t, conn)
				for { // closes the connection at
					f, err := c.in.Next()
					if err != nil || f.Type == wire.TypeRequest {
						swallowed.Add(1)
						conn.Close()
						return
					}
					switch f.Type {
					case wire.TypeHello:
						_, _ = conn.Write(wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 100}))
					case wire.TypeLease:
						_, _ = conn.Write(wire.AppendSlot(nil, wire.TypeGrant, f.Lane, 0))
					}
				}
			})
		}
	})
	p := newPool(t, &PoolOptions{Size: 8, Methods: idempotent}, good.address, ln.Addr().String())
	for i := range 2000 {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err, "call %d", i)
	}
	require.Less(t, swallowed.Load(), int32(20))
	require.NoError(t, p.Close())
	ln.Close()
	wg.Wait()
}

func TestOptionsAreCheckedAllAtOnce(t *testing.T) {
	_, err := NewPool(discovery.Static(), &PoolOptions{Size: -1, LanesPerConn: 1 << 20})
	require.ErrorContains(t, err, "Size is -1")
	require.ErrorContains(t, err, "LanesPerConn is 1048576")
	ln, lerr := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, lerr)
	s := NewServer(echo, &ServerOptions{MaxLanes: -5})
	require.ErrorContains(t, s.Serve(ln), "MaxLanes is -5")
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Close())
	require.Zero(t, s.Stats())
}

// A retry waits for RetryWait for a slot of a server that was not tried, and then takes any
// slot.
func TestARetryWaitsForASlotElsewhere(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		g := newGate()
		busy, refuses := newPipes(), newPipes()
		serveOn(t, busy, g.handler, nil)
		var refused atomic.Int32
		serveOn(t, refuses, func(context.Context, string, []byte, []byte) ([]byte, error) {
			refused.Add(1)
			return nil, NotProcessed(errors.New("not here"))
		}, nil)
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if address == "busy" {
				return busy.dial(ctx, address)
			}
			return refuses.dial(ctx, address)
		}
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 2, MaxRetries: 1, Dialer: dial}, source)
		source.set <- snapshot("busy", "refuses")
		time.Sleep(time.Minute)
		require.Equal(t, 2, p.Stats().Slots)
		require.Zero(t, p.Stats().Highest, "one of each")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 2)
		call := func() {
			_, _ = p.Call(ctx, "m", nil, nil)
			ended <- struct{}{}
		}
		go call()
		synctest.Wait()
		if len(g.entered) == 0 { // it was refused without waiting
			t.Fatal("a call that was refused goes to the other server")
		}
		refused.Store(0)
		start := time.Now()
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.Equal(t, CodeUnavailable, CodeOf(err))
		require.Equal(t, int32(2), refused.Load())
		require.Equal(t, DefaultRetryWait, time.Since(start))
		cancel()
		<-ended
		g.release()
		start = time.Now()
		_, err = p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
	})
}

// All slots of a new pool may belong to one server. A retry then waits until another server
// has been connected, even if that takes longer than RetryWait.
func TestARetryWaitsForTheFirstSlotOfAnotherServer(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		works, refuses := newPipes(), newPipes()
		serveOn(t, works, echo, nil)
		serveOn(t, refuses, func(context.Context, string, []byte, []byte) ([]byte, error) {
			return nil, NotProcessed(errors.New("not here"))
		}, nil)
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if address == "refuses" {
				return refuses.dial(ctx, address)
			}
			time.Sleep(8 * DefaultRetryWait)
			return works.dial(ctx, address)
		}
		p := newPoolOf(t, &PoolOptions{Size: 8, Dialer: dial}, discovery.Static("works", "refuses"))
		time.Sleep(DefaultRetryWait)
		require.Equal(t, 8, p.Stats().Slots, "the first server has filled the pool")
		out, err := p.Call(t.Context(), "m", []byte("x"), nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(out))
	})
}

// The slots of a pool may all belong to one server because those of another server have
// higher numbers: it is more loaded. A retry gets a slot of the other server anyway, and
// gives it back.
func TestARetryGetsASlotOfALoadedServer(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		works, refuses := newPipes(), newPipes()
		serveOn(t, works, echo, nil)
		serveOn(t, refuses, func(context.Context, string, []byte, []byte) ([]byte, error) {
			return nil, NotProcessed(errors.New("not here"))
		}, nil)
		loaded := newPoolOf(t, &PoolOptions{Size: 30, Dialer: works.dial}, discovery.Static("works"))
		time.Sleep(time.Second)
		require.Equal(t, 30, loaded.Stats().Slots)
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if address == "refuses" {
				return refuses.dial(ctx, address)
			}
			return works.dial(ctx, address)
		}
		p := newPoolOf(t, &PoolOptions{Size: 8, Dialer: dial}, discovery.Static("works", "refuses"))
		time.Sleep(time.Minute)
		require.Equal(t, 7, p.Stats().Highest, "all slots are those of the first server")
		for range 10 {
			out, err := p.Call(t.Context(), "m", []byte("x"), nil)
			require.NoError(t, err)
			require.Equal(t, "x", string(out))
		}
		time.Sleep(time.Minute)
		require.Equal(t, 8, p.Stats().Slots)
	})
}
