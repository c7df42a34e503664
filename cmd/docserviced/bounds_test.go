package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
)

// fromConn is a connection with an address chosen by a test.
type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

// fromClient returns a connection of client number n.
func fromClient(t *testing.T, n, port int) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	return fromConn{near, &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(n)), Port: port}}
}

func testBounds(limit int, requireAuth bool) *boundedListener {
	d := &daemon{env: &cli.Env{Log: slog.New(slog.DiscardHandler)}, messages: boxcarrpc.NewBudget(8 << 20)}
	o := d.newBoundedListener(nil, "test", limit)
	o.requireAuth = requireAuth
	return o
}

func TestConnectionLimitPerClient(t *testing.T) {
	o := testBounds(80, false)
	port := 0
	connect := func(client int) *boundedConn { port++; return o.admit(fromClient(t, client, port)) }
	for range 10 {
		require.NotNil(t, connect(1))
	}
	require.Nil(t, connect(1), "an eighth")
	other := connect(2)
	require.NotNil(t, other)
	for client := 3; client < 10; client++ {
		for range 10 {
			connect(client)
		}
	}
	require.Len(t, o.mu.conns, 80)
	require.Nil(t, connect(99))
	for _, c := range o.mu.conns {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	}
	require.Empty(t, o.mu.clients)
	require.Zero(t, o.budget.Stats().Used)
}

// An authenticated connection is never closed in favour of an unauthenticated one;
// unauthenticated ones replace each other.
func TestUnauthenticatedConnectionsAreReplaced(t *testing.T) {
	o := testBounds(80, true)
	port := 0
	connect := func(client int) *boundedConn { port++; return o.admit(fromClient(t, client, port)) }
	var authenticated []*boundedConn
	for client := range 70 {
		c := connect(client)
		require.NotNil(t, c)
		c.markAuthenticated(&boxcarrpc.Peer{Identity: fmt.Sprint("client ", client)})
		authenticated = append(authenticated, c)
	}
	for n := range 500 {
		require.NotNil(t, connect(100+n%3))
		require.LessOrEqual(t, o.mu.unauthenticated, 10)
	}
	late := connect(50)
	require.NotNil(t, late)
	for range 5 { // the flood continues, and the client with the fewest stays
		connect(100)
	}
	late.markAuthenticated(&boxcarrpc.Peer{Identity: "late"})
	for _, c := range append(authenticated, late) {
		require.True(t, c.present)
	}
}

// startWithTokens starts a daemon that requires tokens, and returns a valid one.
func startWithTokens(t *testing.T) (d *daemon, token string) {
	queueDir := t.TempDir()
	fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.grpc, token = "127.0.0.1:0", "0123456789abcdef"
	o.security.tokenFile = filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(o.security.tokenFile, []byte("frontend "+token+"\n"), 0o600))
	d, _ = startTestDaemon(t, o)
	waitReady(t, d)
	return d, token
}

func dialGRPC(t *testing.T, d *daemon) *grpc.ClientConn {
	conn, err := grpc.NewClient(d.grpcListener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Clients without a token can watch the health, a limited number at a time, and do not lock
// out clients with a token.
func TestUnauthenticatedWatchesAreLimited(t *testing.T) {
	d, token := startWithTokens(t)
	refused := 0
	for range 2 * grpcMaxConns / clientShare {
		watch, err := grpc_health_v1.NewHealthClient(dialGRPC(t, d)).Watch(shortly(t), new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		if _, err := watch.Recv(); status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	assert.NotZero(t, refused)
	require.LessOrEqual(t, d.unauthenticatedWatches.Load(), int64(grpcUnauthenticatedWatches))

	conn := dialGRPC(t, d)
	ctx := metadata.AppendToOutgoingContext(shortly(t), "authorization", "Bearer "+token)
	for range 10 {
		_, err := docservicegrpc.NewDocumentsClient(conn).Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.NoError(t, err)
	}
	for range 2 * grpcUnauthenticatedWatches {
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		if _, err = watch.Recv(); err != nil {
			require.NoError(t, err, "with a token")
		}
		if refused++; refused%50 == 0 { // more than fit on one connection
			conn = dialGRPC(t, d)
		}
	}
	_, err := grpc_health_v1.NewHealthClient(dialGRPC(t, d)).Check(shortly(t), new(grpc_health_v1.HealthCheckRequest))
	require.NoError(t, err, "every client may call Check")
}

// watchError opens a health stream and returns the error of its first message.
func watchError(t *testing.T, conn *grpc.ClientConn) error {
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(shortly(t), new(grpc_health_v1.HealthCheckRequest))
	require.NoError(t, err)
	_, err = watch.Recv()
	return err
}

// A server that requires no credentials limits the health streams of a client and of all
// clients.
func TestWatchesAreLimited(t *testing.T) {
	queueDir := t.TempDir()
	fill(t, queueDir, "a", `{"id":"a"}`)
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	for i := range grpcMaxWatches / clientShare {
		if i%(grpcMaxStreams/2) == 0 {
			conn = dialGRPC(t, d)
		}
		require.NoError(t, watchError(t, conn))
	}
	require.ErrorContains(t, watchError(t, dialGRPC(t, d)), "128 for a client")
	other, err := grpc.NewClient(d.grpcListener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			return dialer.DialContext(ctx, "tcp", address)
		}))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, watchError(t, other), "another client")
	d.watches.Add(grpcMaxWatches - d.watches.Load() - 1)
	require.NoError(t, watchError(t, other))
	require.ErrorContains(t, watchError(t, other), "1024 for all clients")
}

// A health stream of a client without credentials ends after a time.
func TestUnauthenticatedWatchEnds(t *testing.T) {
	d, token := startWithTokens(t)
	h := &grpcHealth{daemon: d, unauthenticatedWatch: 10 * time.Millisecond}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bounded := d.newBoundedListener(listener, "gRPC", grpcMaxConns)
	bounded.requireAuth, bounded.grpc = true, true
	server := grpc.NewServer(grpc.StatsHandler(&grpcCounter{listener: bounded}), grpc.ChainStreamInterceptor(d.admitStream))
	grpc_health_v1.RegisterHealthServer(server, h)
	go func() { _ = server.Serve(bounded) }() // until it is stopped
	defer server.Stop()
	for _, authenticates := range []bool{false, true} {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if authenticates {
			cancel()
			ctx, cancel = context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), 100*time.Millisecond)
		}
		defer cancel()
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		for err == nil {
			_, err = watch.Recv()
		}
		if authenticates {
			require.Equal(t, codes.DeadlineExceeded, status.Code(err), "only the client ends it: %v", err)
		} else {
			require.ErrorContains(t, err, "has a time limit")
		}
	}
}

// The budget counts the bytes of gRPC requests and responses, and all of them are released.
func TestBytesOverGRPCAreCounted(t *testing.T) {
	queueDir := t.TempDir()
	document := strings.Repeat("x", 1<<20)
	fill(t, queueDir, "a", document)
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	client := docservicegrpc.NewDocumentsClient(conn)
	for range 50 {
		answer, err := client.Get(shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.NoError(t, err)
		require.Len(t, answer.GetDocument(), len(document))
	}
	_, err := client.Get(shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: make([]byte, 1<<20)})
	require.Error(t, err)
	require.Eventually(t, func() bool { return d.messages.Stats().Used == 0 }, 10*time.Second, time.Millisecond)

	// An incomplete call is held.
	stream, err := conn.NewStream(shortly(t), &grpc.StreamDesc{ClientStreams: true}, "/docstore.v1.Documents/Get")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&docservicepb.GetRequest{Collection: "jobs", Id: make([]byte, 3<<20)}))
	_ = stream.CloseSend()
	conn.Close()
	require.Eventually(t, func() bool { return d.messages.Stats().Used == 0 }, 10*time.Second, time.Millisecond)
}

// The budget counts unread documents and exports over HTTP until their connections are
// closed; other clients are served meanwhile.
func TestBytesOverHTTPAreCounted(t *testing.T) {
	queueDir := t.TempDir()
	var pairs []string
	for i := range 20 {
		pairs = append(pairs, fmt.Sprint(i), strings.Repeat(fmt.Sprint(i), 1<<20))
	}
	fill(t, queueDir, pairs...)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	for _, path := range []string{"/documents/jobs/7", "/collections/jobs/export"} {
		var conns []net.Conn
		for range 30 {
			conn, err := net.Dial("tcp", d.httpAddress())
			require.NoError(t, err)
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		require.Eventually(t, func() bool { return d.messages.Stats().Used > 1<<20 }, 10*time.Second, time.Millisecond)
		require.Less(t, d.messages.Stats().Used, d.messages.Stats().Limit+exportBytes+4<<20)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.httpAddress()+"/readyz", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		cancel()
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		http.DefaultClient.CloseIdleConnections()
		require.Eventually(t, func() bool { return d.messages.Stats().Used == 0 }, 20*time.Second, time.Millisecond, path)
	}
}
