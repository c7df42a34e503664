package boxcarrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

// A virtualCluster is a set of servers on pipes and virtual time, with the addresses 0, 1,
// 2 and so on.
type virtualCluster struct {
	servers []*testServer
	doors   []*pipes
}

// withVirtualCluster runs a test on virtual time with n servers; handler returns the
// handler of each.
func withVirtualCluster(t *testing.T, n int, handler func(server int) Handler, opts *ServerOptions, test func(t *testing.T, w *virtualCluster)) {
	virtualtime.Test(t, func(t *testing.T) {
		w := &virtualCluster{}
		for i := range n {
			l := newPipes()
			var own *ServerOptions
			if opts != nil {
				own = new(ServerOptions)
				*own = *opts
			}
			w.servers = append(w.servers, serveOn(t, l, handler(i), own))
			w.doors = append(w.doors, l)
		}
		test(t, w)
	})
}

func (w *virtualCluster) addresses() (list []string) {
	for i := range w.doors {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

func (w *virtualCluster) dial(ctx context.Context, address string) (net.Conn, error) {
	var i int
	if _, err := fmt.Sscan(address, &i); err != nil {
		return nil, err
	}
	return w.doors[i].dial(ctx, address)
}

// pool returns a pool of all servers. It waits until the pool is full and finds no better
// slots, so that every server has granted some.
func (w *virtualCluster) pool(t *testing.T, opts *PoolOptions) *Pool {
	opts.Dialer = w.dial
	p := newPool(t, opts, w.addresses()...)
	full(t, p)
	time.Sleep(time.Hour)
	return p
}

func echoes(int) Handler { return echo }

// A drained server loses its slots and all calls but keeps the connections; both return
// within a second after Undrain.
func TestDrainedServerIsUnusedUntilUndrained(t *testing.T) {
	withVirtualCluster(t, 3, echoes, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 9})
		call := func(n int) {
			for range n {
				_, err := p.Call(t.Context(), "not idempotent", nil, nil)
				require.NoError(t, err)
			}
		}
		call(30)
		drained := w.servers[1]
		require.NotZero(t, drained.Stats().Requests)
		accepted := drained.Stats().Accepted
		drained.Drain()
		drained.Drain() // already draining
		time.Sleep(time.Second)
		require.Equal(t, 0, drained.Stats().Slots)
		require.True(t, drained.Stats().Draining)
		before := drained.Stats().Requests
		call(30)
		require.Equal(t, before, drained.Stats().Requests)

		time.Sleep(time.Hour) // connections without slots are closed
		require.Equal(t, accepted, drained.Stats().Accepted, "its clients do not reconnect")
		require.Equal(t, 1, drained.Stats().Connections)
		require.Equal(t, 9, p.Stats().Slots)
		require.Equal(t, 2, p.Stats().Live)

		drained.Undrain()
		time.Sleep(time.Second)
		require.NotZero(t, drained.Stats().Slots)
		require.Equal(t, 3, p.Stats().Live)
		call(30)
		require.Greater(t, drained.Stats().Requests, before)
		require.Zero(t, p.Stats().Broken)
		require.Equal(t, uint64(1), drained.Stats().Accepted)
	})
}

// A client keeps a connection to a draining server, to learn of UNDRAIN, also while an older
// connection waits for the end of a call.
func TestDrainOfAServerWithALeavingConnection(t *testing.T) {
	var gate *gate
	handler := func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		return gate.handler(ctx, method, request, dst)
	}
	inBubble(t, handler, nil, func(t *testing.T, s *testServer, l *pipes) {
		gate = newGate()
		defer gate.release()
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 2, LeaveAfter: -1, CallTimeout: time.Hour, Dialer: l.dial}, source)
		source.set <- snapshot("s")
		require.NoError(t, p.WaitReady(t.Context()))
		go func() { _, _ = p.Call(t.Context(), "long", nil, nil) }()
		<-gate.entered
		source.set <- snapshot()
		time.Sleep(time.Second)
		source.set <- snapshot("s")
		time.Sleep(time.Second)
		require.Equal(t, 2, s.Stats().Connections)
		s.Drain()
		time.Sleep(time.Minute) // connections without slots are closed
		require.Equal(t, 2, s.Stats().Connections)
		require.Equal(t, uint64(2), s.Stats().Accepted, "the client does not reconnect")
	})
}

// A client that connects to a draining server learns of DRAIN and UNDRAIN.
func TestPoolWaitsForADrainedServer(t *testing.T) {
	withVirtualCluster(t, 1, echoes, nil, func(t *testing.T, w *virtualCluster) {
		w.servers[0].Drain()
		p := newPoolOf(t, &PoolOptions{Size: 2, Dialer: w.dial}, discovery.Static("0"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := p.WaitReady(ctx)
		require.ErrorIs(t, err, ErrNoServer)
		require.ErrorIs(t, err, ErrDraining)
		require.ErrorIs(t, p.NoServerReason(), ErrDraining)
		require.Equal(t, uint64(1), w.servers[0].Stats().Accepted)
		start := time.Now()
		w.servers[0].Undrain()
		require.NoError(t, p.WaitReady(t.Context()))
		require.Zero(t, time.Since(start), "a pool without slots sends LEASE at once")
	})
}

// The frames that a server sends to a client that keeps to the protocol.
func TestDrainFrames(t *testing.T) {
	g := newGate()
	defer g.release()
	s := serve(t, g.handler, nil)
	c := dialRaw(t, s.address)
	c.hello()
	c.send(lease, wire.AppendSlot(nil, wire.TypeLease, 1, wire.NoSlot), request)
	require.Equal(t, wire.TypeGrant, c.next().Type)
	require.Equal(t, wire.TypeGrant, c.next().Type)
	<-g.entered
	s.Drain()
	f := c.next()
	require.Equal(t, wire.TypeDrain, f.Type)
	reason, err := f.Reason()
	require.NoError(t, err)
	require.NotEmpty(t, reason)

	refused := func() {
		f := c.next()
		require.Equal(t, wire.TypeResponse, f.Type)
		r, _, err := f.Response()
		require.NoError(t, err)
		require.Equal(t, uint32(CodeUnavailable), r.Code)
		require.Zero(t, f.Flags&wire.FlagProcessed)
	}
	c.send(wire.AppendRequest(nil, 1, wire.Request{Sequence: 9}, "m", nil))
	refused()
	c.send(wire.AppendSlot(nil, wire.TypeLease, 2, wire.NoSlot))
	f = c.next()
	require.Equal(t, wire.TypeDeny, f.Type)
	lowest, err := f.Slot()
	require.NoError(t, err)
	require.Equal(t, uint32(wire.NoSlot), lowest)
	other := dialRaw(t, s.address)
	other.hello()
	require.Equal(t, wire.TypeDrain, other.next().Type, "a later client is informed, too")

	s.Undrain()
	require.Equal(t, wire.TypeUndrain, other.next().Type)
	require.Equal(t, wire.TypeUndrain, c.next().Type)
	c.send(wire.AppendSlot(nil, wire.TypeLease, 2, wire.NoSlot))
	require.Equal(t, wire.TypeGrant, c.next().Type)
	g.release()
	require.Equal(t, wire.TypeResponse, c.next().Type, "the request in flight is finished")

	go func() { _ = s.Shutdown(context.Background()) }()
	require.Equal(t, wire.TypeGoAway, c.next().Type)
	s.Undrain()
	require.True(t, s.Stats().Draining, "Undrain does not undo Shutdown")
	c.ends()
}

// Servers are drained and undrained one after another under load: no call fails, idempotent
// or not.
func TestDrainingServersInTurnFailsNoCall(t *testing.T) {
	servers := []*testServer{serve(t, echo, nil), serve(t, echo, nil), serve(t, echo, nil)}
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	p := newPool(t, &PoolOptions{Size: 9}, addresses...)
	full(t, p)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for !stop.Load() {
				if _, err := p.Call(context.Background(), "not idempotent", []byte("x"), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 12 {
		s := servers[i%3]
		s.Drain()
		until(t, "the server is drained", func() bool { stats := s.Stats(); return stats.Slots == 0 && stats.InFlight == 0 })
		n := s.Stats().Requests
		s.Undrain()
		until(t, "the server is used again", func() bool { return s.Stats().Requests > n+10 })
	}
	stop.Store(true)
	wg.Wait()
	require.Zero(t, p.Stats().Broken)
}

// askTool opens a built-in stream on a server with its own pool.
func askTool(t *testing.T, opts *PoolOptions, address, method string) (b Board, err error) {
	p := newPoolOf(t, opts, discovery.Static(address))
	stream, err := p.Stream(t.Context(), method, nil)
	require.NoError(t, err)
	defer stream.Close()
	answer, err := stream.Receive(nil)
	if err != nil {
		return b, err
	}
	require.NoError(t, json.Unmarshal(answer, &b))
	_, err = stream.Receive(nil)
	require.ErrorIs(t, err, io.EOF)
	return b, p.Close()
}

// Built-in streams work in every state of the server: without a stream handler, without
// slots, and draining.
func TestAServerIsDrainedOverTheWire(t *testing.T) {
	s := serve(t, echo, nil)
	for _, x := range []struct {
		method   string
		draining bool
	}{{MethodBoard, false}, {MethodDrain, true}, {MethodBoard, true}, {MethodDrain, true}, {MethodUndrain, false}} {
		b, err := askTool(t, nil, s.address, x.method)
		require.NoError(t, err)
		require.Equal(t, x.draining, b.Draining)
		require.Equal(t, x.draining, s.Stats().Draining)
		require.Zero(t, b.InFlight, "the request itself does not count")
		require.Zero(t, b.Streams)
	}
	require.Zero(t, s.Stats().Requests)
}

// A farConn has the address of another host.
type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

type farListener struct{ net.Listener }

func (l farListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return farConn{conn}, err
}

// Only operators may drain a server that identifies its clients, from any host: a proxy on
// its own host may forward requests of others.
func TestOnlyOperatorsDrainAServerWithIdentities(t *testing.T) {
	identify := (&keys{names: map[string]string{"a": "ali", "b": "baba", "": ""}}).authenticate
	for name, test := range map[string]struct {
		far     bool
		options ServerOptions
		drains  []string // tokens
	}{
		"far, with operators":  {true, ServerOptions{Authenticate: identify, Operators: []string{"baba", ""}}, []string{"b"}},
		"near, with operators": {false, ServerOptions{Authenticate: identify, Operators: []string{"baba", ""}}, []string{"b"}},
		"near, without":        {false, ServerOptions{Authenticate: identify}, nil},
		"near, no identities":  {false, ServerOptions{Operators: []string{"baba"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			if test.far {
				ln = farListener{ln}
			}
			s := serveOn(t, ln, echo, &test.options)
			for _, token := range []string{"a", "", "b"} {
				b, err := askTool(t, &PoolOptions{Token: fixed(token)}, s.address, MethodDrain)
				if slices.Contains(test.drains, token) {
					require.NoError(t, err)
					require.True(t, b.Draining)
					continue
				}
				require.Equal(t, CodePermissionDenied, CodeOf(err))
				require.False(t, s.Stats().Draining)
			}
		})
	}
}

func TestOtherHostsMayNotDrain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := serveOn(t, farListener{ln}, echo, nil)
	for _, method := range []string{MethodDrain, MethodUndrain} {
		_, err := askTool(t, nil, s.address, method)
		require.Equal(t, CodePermissionDenied, CodeOf(err))
	}
	require.False(t, s.Stats().Draining)
	_, err = askTool(t, nil, s.address, MethodBoard)
	require.NoError(t, err)
	for address, local := range map[string]bool{
		"127.0.0.1:7": true, "[::1]:7": true, "[::ffff:127.0.0.1]:7": true, "10.0.0.1:7": false, "[2001:db8::1]:7": false,
	} {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		require.Equal(t, local, conn.IsLocal(tcp), address)
	}
	require.True(t, conn.IsLocal(&net.UnixAddr{Name: "/run/x", Net: "unix"}))
}
