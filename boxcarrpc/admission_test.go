package boxcarrpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

func newLimiter(t *testing.T, perSecond float64, burst int) budget.Limiter {
	l, err := budget.NewLimiter(perSecond, burst)
	require.NoError(t, err)
	return l
}

// A request above MaxInFlight is refused as not processed, and retried on the client's next
// slot.
func TestMaxInFlightBoundsTheRequests(t *testing.T) {
	g := newGate()
	defer g.release()
	s := serve(t, g.handler, &ServerOptions{Admission: budget.Admission{MaxInFlight: 2}, StreamHandler: streams})
	p := newPool(t, &PoolOptions{Size: 4}, s.address)
	full(t, p)
	_, err := p.Call(t.Context(), MethodEcho, nil, nil) // makes the server trusted
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _ = p.Call(ctx, "m", nil, nil) })
		<-g.entered
	}
	_, err = p.Call(t.Context(), "m", nil, nil)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, CodeResourceExhausted, e.Code)
	require.False(t, e.Processed)
	stream, err := p.Stream(t.Context(), "echo", nil)
	require.NoError(t, err)
	_, err = stream.Receive(nil)
	require.ErrorAs(t, err, &e)
	require.Equal(t, CodeResourceExhausted, e.Code)
	require.False(t, e.Processed)
	stats := s.Stats()
	require.Equal(t, 2, stats.InFlight)
	require.Zero(t, stats.Streams)
	require.Equal(t, stats.Refused, stats.RefusedBy["in_flight"])

	other := serve(t, echo, nil)
	p.members.follow(discovery.Snapshot{Servers: []discovery.Server{{Address: s.address}, {Address: other.address}}})
	until(t, "the other server has a slot", func() bool { return other.Stats().Slots > 0 })
	for range 20 {
		_, err := p.Call(t.Context(), "not idempotent", nil, nil)
		require.NoError(t, err)
	}
	cancel()
	wg.Wait()
	until(t, "no request is in flight", func() bool { return s.Stats().InFlight == 0 })
}

// A server handles no more requests than its rate allows, and no call fails: other servers
// serve the refused ones.
func TestServerRateLimit(t *testing.T) {
	for name, limiter := range map[string]func() budget.Limiter{
		"own":    func() budget.Limiter { return newLimiter(t, 100, 5) },
		"x/time": func() budget.Limiter { return rate.NewLimiter(100, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			slow := func(int) Handler {
				return func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
					time.Sleep(time.Millisecond)
					return append(dst, request...), nil
				}
			}
			withVirtualCluster(t, 3, slow, nil, func(t *testing.T, w *virtualCluster) {
				limited := w.servers[0]
				require.NoError(t, limited.SetAdmission(budget.Admission{Limiter: limiter()}))
				p := w.pool(t, &PoolOptions{Size: 6})
				start := time.Now()
				for range 5000 {
					_, err := p.Call(t.Context(), "not idempotent", nil, nil)
					require.NoError(t, err)
				}
				stats := limited.Stats()
				require.NotZero(t, stats.RefusedBy["rate"])
				require.Greater(t, stats.Requests, uint64(10))
				require.LessOrEqual(t, float64(stats.Requests), 5+100*time.Since(start).Seconds())
				require.Zero(t, p.Stats().Lost, "a refusal costs no slot")
			})
		})
	}
}

// A namedConn has a chosen remote address.
type namedConn struct {
	net.Conn
	from net.Addr
}

func (c namedConn) RemoteAddr() net.Addr { return c.from }

// dialFrom dials from an IP address.
func (l *pipes) dialFrom(ip string) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		a, b := net.Pipe()
		l.conns <- namedConn{b, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
		return a, nil
	}
}

// A client that sends as fast as it can is limited by its own rate and does not reduce that
// of others.
func TestGreedyClientIsLimitedByItsRate(t *testing.T) {
	opts := &ServerOptions{Admission: budget.Admission{ClientRate: 50, ClientBurst: 5}}
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		opts.Admission.Limiter = newLimiter(t, 100, 10)
		s := serveOn(t, l, echo, opts)
		greedy := newPool(t, &PoolOptions{Size: 4, Dialer: l.dialFrom("10.0.0.1")}, "s")
		modest := newPool(t, &PoolOptions{Size: 4, Dialer: l.dialFrom("10.0.0.2")}, "s")
		start := time.Now()
		var served atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for time.Since(start) < 10*time.Second {
				if _, err := greedy.Call(t.Context(), "m", nil, nil); err == nil {
					served.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
		for time.Since(start) < 10*time.Second {
			_, err := modest.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
			time.Sleep(25 * time.Millisecond)
		}
		wg.Wait()
		require.InDelta(t, 505, served.Load(), 5)
		require.NotZero(t, s.Stats().RefusedBy["client_rate"])
		require.Zero(t, s.Stats().RefusedBy["rate"])
	})
}

// A client knows the limit of its server. A peer that exceeds it nevertheless loses its
// connection.
func TestMaxRequestBytesBoundsRequests(t *testing.T) {
	const limit = 1000
	s := serve(t, echo, &ServerOptions{MaxRequestBytes: limit, StreamHandler: streams})
	p := newPool(t, &PoolOptions{Size: 1}, s.address)
	_, err := p.Call(t.Context(), "m", make([]byte, limit), nil)
	require.NoError(t, err)
	_, err = p.Call(t.Context(), "m", make([]byte, limit+1), nil)
	require.Equal(t, CodeInvalidArgument, CodeOf(err))
	require.ErrorContains(t, err, "request of 1001 bytes: server "+s.address+" accepts at most 1000")
	stream, err := p.Stream(t.Context(), "echo", nil)
	require.NoError(t, err)
	defer stream.Close()
	require.NoError(t, stream.Send(make([]byte, limit)))
	require.Equal(t, CodeResourceExhausted, CodeOf(stream.Send(make([]byte, limit+1))))
	require.Zero(t, s.Stats().Faults)

	c := dialRaw(t, s.address)
	c.hello()
	c.send(lease)
	require.Equal(t, wire.TypeGrant, c.next().Type)
	c.send(wire.AppendRequest(nil, 0, wire.Request{Sequence: 1, Total: limit + 1}, "m", nil))
	c.ends()
	until(t, "the fault is counted", func() bool { return s.Stats().Faults == 1 })
}

func TestAdmissionIsChecked(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	err = NewServer(echo, &ServerOptions{Admission: budget.Admission{MaxInFlight: -1, ClientRate: -1}}).Serve(ln)
	for _, field := range []string{"MaxInFlight", "ClientRate"} {
		require.ErrorContains(t, err, field)
	}
}

// A client opens more connections if a server allows few lanes on each.
func TestMaxLanesPerConnMakesMoreConnections(t *testing.T) {
	s := serve(t, echo, &ServerOptions{maxLanesPerConn: 2})
	p := newPool(t, &PoolOptions{Size: 6}, s.address)
	full(t, p)
	// The pool may already have requested a better slot on another connection.
	require.Contains(t, []int{3, 4}, p.Stats().Transports)
	require.Equal(t, 6, p.Stats().Slots)
}

// If a server accepts no more connections, the pool uses others.
func TestAPoolLeavesAServerThatTakesNoConnection(t *testing.T) {
	crowded, roomy := serve(t, echo, &ServerOptions{MaxConns: 1}), serve(t, echo, nil)
	first := newPool(t, &PoolOptions{Size: 1}, crowded.address)
	p := newPool(t, &PoolOptions{Size: 4}, crowded.address, roomy.address)
	full(t, p)
	for range 20 {
		_, err := p.Call(t.Context(), "not idempotent", nil, nil)
		require.NoError(t, err)
	}
	require.Equal(t, 4, roomy.Stats().Slots)
	require.NoError(t, first.Close())
	until(t, "the crowded server has room again", func() bool { return roomy.Stats().Slots < 4 && crowded.Stats().Slots > 0 })
}

// Requests of other protocols count together with those of Boxcar.
func TestAdmissionOfAnotherProtocol(t *testing.T) {
	s := serve(t, echo, &ServerOptions{Admission: budget.Admission{MaxInFlight: 2, ClientRate: 1e-3, ClientBurst: 3}})
	p := newPool(t, &PoolOptions{Size: 1, MaxRetries: -1}, s.address)
	full(t, p)
	here := &Peer{Address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}}
	var leaves []func()
	for range 2 {
		leave, err := s.Admit(here.Client(), false)
		require.NoError(t, err)
		leaves = append(leaves, leave)
	}
	require.Equal(t, 2, s.Stats().InFlight)
	refused := func(peer *Peer, reason string) {
		t.Helper()
		before := s.Stats().RefusedBy[reason]
		_, err := s.Admit(peer.Client(), false)
		require.Equal(t, CodeResourceExhausted, CodeOf(err))
		require.Equal(t, before+1, s.Stats().RefusedBy[reason])
	}
	refused(&Peer{Identity: Identity{TokenIdentity, "frontend"}}, "in_flight")
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.Equal(t, CodeResourceExhausted, CodeOf(err), "the other protocol uses the whole limit")
	for _, leave := range leaves {
		leave()
	}
	require.Zero(t, s.Stats().InFlight)

	_, err = p.Call(t.Context(), "m", nil, nil)
	require.NoError(t, err, "the third of three from this address")
	refused(here, "client_rate")
	leave, err := s.Admit(budget.ClientNamed("frontend"), false)
	require.NoError(t, err, "a client with an identity does not count for its address")
	leave()

	_, err = NewServer(nil, nil).Admit(here.Client(), false)
	require.ErrorContains(t, err, "a server needs a handler")
}

// grab takes all connections, slots and streams that a server grants, and returns their
// numbers.
func grab(t *testing.T, dial func(context.Context, string) (net.Conn, error), conns, lanes, streams uint32) (gotConns, gotSlots, gotStreams int) {
	for range conns {
		conn, err := dial(t.Context(), "s")
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		c := newRaw(t, conn)
		if _, err := conn.Write(hostileHello); err != nil {
			continue
		}
		if _, err := c.in.Next(); err != nil {
			continue
		}
		gotConns++
		for lane := range lanes {
			c.send(wire.AppendSlot(nil, wire.TypeLease, lane, wire.NoSlot))
			if c.next().Type == wire.TypeGrant {
				gotSlots++
			}
		}
		for number := range streams {
			c.send(wire.AppendOpen(nil, number, wire.Open{Sequence: 1}, "wait", nil), wire.AppendPing(nil, wire.TypePing, 1))
			if c.next().Type == wire.TypeStatus {
				require.Equal(t, wire.TypePong, c.next().Type)
			} else {
				gotStreams++
			}
		}
	}
	return gotConns, gotSlots, gotStreams
}

// One client cannot take all slots, streams and connections of a server, and a new client
// gets some at once.
func TestOneClientDoesNotTakeAllSlots(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		wait := func(ctx context.Context, _ string, _ *ServerStream) error { <-ctx.Done(); return ctx.Err() }
		s := serveOn(t, l, echo, &ServerOptions{MaxConns: 1600, MaxLanes: 16 << 10, MaxStreams: 1600, StreamHandler: wait})
		conns, slots, streams := grab(t, l.dialFrom("10.0.0.1"), 210, 80, 5)
		require.Equal(t, 200, conns, "an eighth")
		require.Equal(t, 2<<10, slots)
		require.Equal(t, 200, streams)
		require.Equal(t, uint64(800), s.Stats().RefusedBy["client_streams"])

		p := newPool(t, &PoolOptions{Size: 64, Dialer: l.dialFrom("10.0.0.2")}, "s")
		full(t, p)
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		stream, err := p.Stream(t.Context(), "m", nil)
		require.NoError(t, err)
		stream.Close()
	})
}

// Released connections, slots and streams are available again, and no state is kept of a
// client that has disconnected.
func TestAClientsShareIsGivenBack(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{MaxLanes: 2 << 10, ClientShare: 0.5})
		for round := range 3 {
			conn, err := l.dial(t.Context(), "s")
			require.NoError(t, err)
			c := newRaw(t, conn)
			c.hello()
			for lane := range uint32(1 << 10) {
				c.send(wire.AppendSlot(nil, wire.TypeLease, lane, wire.NoSlot))
				require.Equal(t, wire.TypeGrant, c.next().Type, fmt.Sprint(round, lane))
			}
			require.NoError(t, conn.Close())
			until(t, "the connection is closed", func() bool { return s.Stats().Slots == 0 && s.Stats().Connections == 0 })
		}
		require.Empty(t, s.shares.clients)
	})
}

// A client that reconnected while handlers of its streams ran was counted as a new one, and
// held 768 streams with a share of 128.
func TestStreamsOfRunningHandlersCountForTheirClient(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		finish := make(chan struct{})
		release := sync.OnceFunc(func() { close(finish) })
		defer release()
		s := serveOn(t, l, echo, &ServerOptions{MaxStreams: 1 << 10, StreamHandler: func(context.Context, string, *ServerStream) error {
			<-finish // also when the connection has ended
			return nil
		}})
		total := 0
		for range 6 {
			conn, err := l.dial(t.Context(), "s")
			require.NoError(t, err)
			_, _, streams := grab(t, func(context.Context, string) (net.Conn, error) { return conn, nil }, 1, 0, leastStreams)
			total += streams
			require.NoError(t, conn.Close())
			until(t, "the connection is closed", func() bool { return s.Stats().Connections == 0 })
		}
		require.Equal(t, leastStreams, total)
		require.Equal(t, leastStreams, s.Stats().Streams)
		release()
		until(t, "the streams have ended", func() bool { return s.Stats().Streams == 0 })
		require.Empty(t, s.shares.clients)
	})
}

// The share of an authenticated client goes by its identity, not by its address.
func TestSharesGoByIdentity(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{
			MaxConns: 1 << 10, ClientShare: 0.001,
			Authenticate: func(_ *Peer, token string) (Identity, error) { return Identity{TokenIdentity, token}, nil },
		})
		dial := l.dialFrom("10.0.0.1")
		for i := range 3 * leastConns {
			conn, err := dial(t.Context(), "s")
			require.NoError(t, err)
			defer conn.Close()
			c := newRaw(t, conn)
			c.send(wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Token: fmt.Sprint("client ", i%3)}))
			require.Equal(t, wire.TypeHello, c.next().Type)
		}
		require.Len(t, s.shares.clients, 3)
		conn, err := dial(t.Context(), "s")
		require.NoError(t, err)
		defer conn.Close()
		c := newRaw(t, conn)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Second)))
		c.send(wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Token: "client 0"}))
		require.Equal(t, wire.TypeGoAway, c.next().Type)
	})
}
