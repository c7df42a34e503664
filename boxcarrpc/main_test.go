package boxcarrpc

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc/discovery"
)

var logFlag = flag.Bool("log", false, "show the logs of servers and pools")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLogger(t testing.TB) *slog.Logger {
	if !*logFlag {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// echo returns the request.
func echo(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
	return append(dst, request...), nil
}

// A testServer is a server on a loopback port or on the listener of serveOn.
type testServer struct {
	*Server
	address string
	ended   chan error
}

func serve(t testing.TB, h Handler, opts *ServerOptions) *testServer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, ln, h, opts)
}

func serveOn(t testing.TB, ln net.Listener, h Handler, opts *ServerOptions) *testServer {
	if opts == nil {
		opts = &ServerOptions{}
	}
	if opts.Logger == nil {
		opts.Logger = testLogger(t)
	}
	s := &testServer{Server: NewServer(h, opts), address: ln.Addr().String(), ended: make(chan error, 1)}
	go func() { s.ended <- s.Serve(ln) }()
	t.Cleanup(s.stop)
	return s
}

// stop closes the server, once.
func (s *testServer) stop() {
	_ = s.Close()
	if err := <-s.ended; !errors.Is(err, ErrServerClosed) {
		panic(err)
	}
	s.ended <- ErrServerClosed
}

// newPool returns a pool that holds a slot.
func newPool(t testing.TB, opts *PoolOptions, addresses ...string) *Pool {
	p := newPoolOf(t, opts, discovery.Static(addresses...))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(t, p.WaitReady(ctx))
	return p
}

func newPoolOf(t testing.TB, opts *PoolOptions, d discovery.Source) *Pool {
	if opts == nil {
		opts = &PoolOptions{}
	}
	if opts.Logger == nil {
		opts.Logger = testLogger(t)
	}
	if opts.Dialer == nil && opts.SilenceTimeout == 0 {
		opts.SilenceTimeout = time.Minute // other processes share the processors
	}
	p, err := NewPool(d, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// until waits for a condition that other goroutines establish.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// full waits until the pool holds all its slots.
func full(t testing.TB, p *Pool) {
	t.Helper()
	until(t, "the pool is full", func() bool { return p.Stats().Slots == p.Stats().Size })
}

// A gate blocks handlers until it is opened.
type gate struct {
	entered chan struct{} // receives an element for each call
	open    chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) handler(ctx context.Context, _ string, request, dst []byte) ([]byte, error) {
	g.entered <- struct{}{}
	select {
	case <-g.open:
		return append(dst, request...), nil
	case <-ctx.Done():
		return dst, ctx.Err()
	}
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// A pipes is a listener and a dialer of in-memory connections, for tests on virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipes) Addr() net.Addr { return pipeAddr{} }

func (l *pipes) dial(ctx context.Context, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.done:
	case <-ctx.Done():
	}
	a.Close()
	return nil, io.ErrClosedPipe
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
