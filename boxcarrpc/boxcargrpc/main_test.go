package boxcargrpc_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A setup has the options of a test's server and client.
type setup struct {
	service  testgrpc.TestServiceServer
	register func(registrar)
	server   boxcargrpc.ServicesOptions
	client   boxcargrpc.ClientOptions

	// For Boxcar only.
	serverOptions boxcarrpc.ServerOptions
	poolOptions   boxcarrpc.PoolOptions
}

// A registrar is a server of either kind.
type registrar interface {
	grpc.ServiceRegistrar
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// A transport starts a server and returns a connection to it.
type transport func(t testing.TB, s setup) *grpc.ClientConn

// overBoxcar is the transport of this package.
func overBoxcar(t testing.TB, s setup) *grpc.ClientConn {
	conn, err := boxcargrpc.NewClient(boxcarPool(t, s), &s.client)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func boxcarPool(t testing.TB, s setup) *boxcarrpc.Pool {
	services := boxcargrpc.NewServices(&s.server)
	s.registerWith(services)
	s.serverOptions.StreamHandler = services.HandleStream
	server := boxcarrpc.NewServer(services.Handle, &s.serverOptions)
	listener := listen(t)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, boxcarrpc.ErrServerClosed)
	})
	s.poolOptions.CallTimeout = -1 // as in gRPC
	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), &s.poolOptions)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(t, pool.WaitReady(ctx))
	return pool
}

// overGRPC is the transport that overBoxcar is compared with.
func overGRPC(t testing.TB, s setup) *grpc.ClientConn {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(s.server.UnaryInterceptors...),
		grpc.ChainStreamInterceptor(s.server.StreamInterceptors...),
	)
	s.registerWith(server)
	listener := listen(t)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-ended)
	})
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(s.client.UnaryInterceptors...),
		grpc.WithChainStreamInterceptor(s.client.StreamInterceptors...),
		grpc.WithDefaultCallOptions(s.client.CallOptions...),
	}
	for _, one := range s.client.Credentials {
		options = append(options, grpc.WithPerRPCCredentials(one))
	}
	conn, err := grpc.NewClient(listener.Addr().String(), options...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (s setup) registerWith(r registrar) {
	if s.service != nil {
		testgrpc.RegisterTestServiceServer(r, s.service)
	}
	if s.register != nil {
		s.register(r)
	}
}

func listen(t testing.TB) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// alike runs a scenario over both transports and requires the same results.
func alike(t *testing.T, scenario func(t *testing.T, open transport) any) {
	t.Helper()
	var seen [2]any
	for i, one := range []struct {
		name string
		open transport
	}{{"gRPC", overGRPC}, {"Boxcar", overBoxcar}} {
		t.Run(one.name, func(t *testing.T) { seen[i] = scenario(t, one.open) })
	}
	require.Equal(t, seen[0], seen[1], "over Boxcar as over gRPC")
}

// scripted is a service whose methods a test provides.
type scripted struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error)
	output func(*testgrpc.StreamingOutputCallRequest, testgrpc.TestService_StreamingOutputCallServer) error
	input  func(testgrpc.TestService_StreamingInputCallServer) error
	duplex func(testgrpc.TestService_FullDuplexCallServer) error
}

func (s *scripted) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return new(testgrpc.Empty), nil
}

func (s *scripted) UnaryCall(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return s.unary(ctx, request)
}

func (s *scripted) StreamingOutputCall(request *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
	return s.output(request, stream)
}

func (s *scripted) StreamingInputCall(stream testgrpc.TestService_StreamingInputCallServer) error {
	return s.input(stream)
}

func (s *scripted) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	return s.duplex(stream)
}

// echoUnary answers with the payload.
func echoUnary(_ context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: request.GetPayload()}, nil
}

// echoDuplex answers each message with its payload.
func echoDuplex(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return ending(err)
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: request.GetPayload()}); err != nil {
			return err
		}
	}
}

func payload(text string) *testgrpc.Payload { return &testgrpc.Payload{Body: []byte(text)} }

// soon returns a context with a short timeout.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var errPlain = errors.New("plain")

func clientOptions(opts ...grpc.CallOption) boxcargrpc.ClientOptions {
	return boxcargrpc.ClientOptions{CallOptions: opts}
}
