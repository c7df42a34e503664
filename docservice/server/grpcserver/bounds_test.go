package grpcserver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/server/internal/bounded"
	"docstore/internal/servertest"
)

// startWithTokens starts a daemon that requires tokens, and returns a valid one.
// otherToken is that of another client of startWithTokens.
const otherToken = "fedcba9876543210"

func startWithTokens(t *testing.T) (d *testServer, token string) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.grpc, token = "127.0.0.1:0", "0123456789abcdef"
	o.Security.TokenFile = filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(o.Security.TokenFile, []byte("frontend "+token+"\nother "+otherToken+"\n"), 0o600))
	d, _ = startTestDaemon(t, o)
	waitReady(t, d)
	return d, token
}

func dialGRPC(t *testing.T, d *testServer, options ...grpc.DialOption) *grpc.ClientConn {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(d.grpc.Address(), options...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Clients without a token can watch the health, a limited number at a time, and do not lock
// out clients with a token.
func TestUnauthenticatedWatchesAreLimited(t *testing.T) {
	d, token := startWithTokens(t)
	refused := 0
	for range 2 * maxConns / bounded.ClientShare {
		watch, err := grpc_health_v1.NewHealthClient(dialGRPC(t, d)).Watch(servertest.Shortly(t), new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		if _, err := watch.Recv(); status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	assert.NotZero(t, refused)
	require.LessOrEqual(t, d.grpc.unauthenticatedWatches.Load(), int64(unauthenticatedWatches))

	conn := dialGRPC(t, d)
	ctx := metadata.AppendToOutgoingContext(servertest.Shortly(t), "authorization", "Bearer "+token)
	for range 10 {
		_, err := docservicegrpc.NewDocumentsClient(conn).Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.NoError(t, err)
	}
	for range 2 * unauthenticatedWatches {
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		if _, err = watch.Recv(); err != nil {
			require.NoError(t, err, "with a token")
		}
		if refused++; refused%50 == 0 { // more than fit on one connection
			conn = dialGRPC(t, d)
		}
	}
	_, err := grpc_health_v1.NewHealthClient(dialGRPC(t, d)).Check(servertest.Shortly(t), new(grpc_health_v1.HealthCheckRequest))
	require.NoError(t, err, "every client may call Check")
}

// watchError opens a health stream and returns the error of its first message.
func watchError(t *testing.T, conn *grpc.ClientConn) error {
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(servertest.Shortly(t), new(grpc_health_v1.HealthCheckRequest))
	require.NoError(t, err)
	_, err = watch.Recv()
	return err
}

// A server that requires no credentials limits the health streams of a client and of all
// clients.
func TestWatchesAreLimited(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	for i := range maxWatches / bounded.ClientShare {
		if i%(maxStreams/2) == 0 {
			conn = dialGRPC(t, d)
		}
		require.NoError(t, watchError(t, conn))
	}
	require.ErrorContains(t, watchError(t, dialGRPC(t, d)), "128 for a client")
	other, err := grpc.NewClient(d.grpc.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			return dialer.DialContext(ctx, "tcp", address)
		}))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, watchError(t, other), "another client")
	d.grpc.watches.Add(maxWatches - d.grpc.watches.Load() - 1)
	require.NoError(t, watchError(t, other))
	require.ErrorContains(t, watchError(t, other), "1024 for all clients")
}

// A client with credentials has a share of the health streams too, apart from that of clients
// without credentials at its address.
func TestAuthenticatedWatchesOfAClientAreLimited(t *testing.T) {
	d, token := startWithTokens(t)
	dial := func(token string) *grpc.ClientConn {
		return dialGRPC(t, d, grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), desc, cc, method, opts...)
		}))
	}
	var conn *grpc.ClientConn
	for i := range maxWatches / bounded.ClientShare {
		if i%(maxStreams/2) == 0 {
			conn = dial(token)
		}
		require.NoError(t, watchError(t, conn))
	}
	require.ErrorContains(t, watchError(t, dial(token)), "128 for a client")
	require.NoError(t, watchError(t, dial(otherToken)), "another client")
	require.NoError(t, watchError(t, dialGRPC(t, d)), "without a token")
}

// A health stream of a client without credentials ends after a time.
func TestUnauthenticatedWatchEnds(t *testing.T) {
	d, token := startWithTokens(t)
	h := &health{protocol: d.grpc, unauthenticatedWatch: 10 * time.Millisecond}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	limited := bounded.New(listener, bounded.Options{
		Name: "gRPC", MaxConns: maxConns, ClientConns: maxConns, RequireCredentials: true, CountCalls: true, Budget: d.Messages(), Logger: d.Logger(),
	})
	server := grpc.NewServer(grpc.StatsHandler(&counter{listener: limited}), grpc.ChainStreamInterceptor(d.grpc.admitStream))
	grpc_health_v1.RegisterHealthServer(server, h)
	go func() { _ = server.Serve(limited) }() // until it is stopped
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
	servertest.Fill(t, queueDir, "a", document)
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	client := docservicegrpc.NewDocumentsClient(conn)
	for range 50 {
		answer, err := client.Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.NoError(t, err)
		require.Len(t, answer.GetDocument(), len(document))
	}
	_, err := client.Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: make([]byte, 1<<20)})
	require.Error(t, err)
	requireNoMessages(t, d)

	// An incomplete call is held.
	stream, err := conn.NewStream(servertest.Shortly(t), &grpc.StreamDesc{ClientStreams: true}, "/docstore.v1.Documents/Get")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&docservicepb.GetRequest{Collection: "jobs", Id: make([]byte, 3<<20)}))
	_ = stream.CloseSend()
	conn.Close()
	requireNoMessages(t, d)
}

// A response is charged and released once, whatever the bytes that it takes on the wire. The
// fourth compressed response of a connection used to wait for memory until its deadline.
func TestCompressedResponsesOverGRPCAreReleased(t *testing.T) {
	queueDir := t.TempDir()
	document := strings.Repeat("x", 960<<10)
	servertest.Fill(t, queueDir, "a", document)
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	client, ctx := docservicegrpc.NewDocumentsClient(conn), servertest.Shortly(t)
	for range 100 {
		answer, err := client.Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")}, grpc.UseCompressor(gzip.Name))
		require.NoError(t, err)
		require.Equal(t, document, string(answer.GetDocument()))
	}
	requireNoMessages(t, d)
}

// The response to a call that the client cancels is released while its connection is open,
// and those that wait to be sent are charged until the connection ends.
func TestAbortedResponsesOverGRPCAreReleased(t *testing.T) {
	queueDir := t.TempDir()
	document := strings.Repeat("x", 960<<10)
	servertest.Fill(t, queueDir, "a", document)
	d, _ := startGRPCDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	conn := dialGRPC(t, d, grpc.WithStaticStreamWindowSize(64<<10))
	client := docservicegrpc.NewDocumentsClient(conn)
	request := &docservicepb.BatchGetRequest{Collection: "jobs", Ids: [][]byte{[]byte("a")}}
	unread := func(ctx context.Context) { // the server holds it: it exceeds the flow-control window
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, docservicegrpc.Documents_BatchGet_FullMethodName)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(request))
		require.NoError(t, stream.CloseSend())
		_, err = stream.Header()
		require.NoError(t, err)
	}
	for range 30 {
		ctx, cancel := context.WithCancel(servertest.Shortly(t))
		unread(ctx)
		require.NotZero(t, d.Messages().Stats().Used)
		cancel()
	}
	requireNoMessages(t, d)

	// The cancellation comes at any step of the call.
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%40)*200*time.Microsecond)
			defer cancel()
			_, err := client.BatchGet(ctx, request)
			assert.Contains(t, []codes.Code{codes.OK, codes.DeadlineExceeded}, status.Code(err), "%v", err)
		})
	}
	all.Wait()
	requireNoMessages(t, d)
	for range 4 {
		_, err := client.BatchGet(servertest.Shortly(t), request)
		require.NoError(t, err)
	}
	requireNoMessages(t, d)

	unread(servertest.Shortly(t))
	require.NotZero(t, d.Messages().Stats().Used)
	require.NoError(t, conn.Close())
	requireNoMessages(t, d)
}

// requireNoMessages waits until the budget of messages is unused.
func requireNoMessages(t *testing.T, d *testServer) {
	t.Helper()
	require.Eventually(t, func() bool { return d.Messages().Stats().Used == 0 }, 10*time.Second, time.Millisecond)
}
