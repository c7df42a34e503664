package grpcinterop

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
)

// A case ends the process if it fails: the line that it logs says why, and go test
// reports the package as failed.
func TestInterop(t *testing.T) {
	address := serve(t)
	conn, end := connect(t, address)
	t.Cleanup(end)
	client := testgrpc.NewTestServiceClient(conn)
	of := func(run func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(context.Context) {
		return func(ctx context.Context) { run(ctx, client) }
	}
	for _, one := range []struct {
		name string
		run  func(context.Context)
	}{
		{"empty_unary", of(interop.DoEmptyUnaryCall)},
		{"large_unary", of(interop.DoLargeUnaryCall)},
		{"client_streaming", of(interop.DoClientStreaming)},
		{"server_streaming", of(interop.DoServerStreaming)},
		{"ping_pong", of(interop.DoPingPong)},
		{"empty_stream", of(interop.DoEmptyStream)},
		{"custom_metadata", of(interop.DoCustomMetadata)},
		{"status_code_and_message", of(interop.DoStatusCodeAndMessage)},
		{"special_status_message", of(interop.DoSpecialStatusMessage)},
		{"unimplemented_method", func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, conn) }},
		{"unimplemented_service", func(ctx context.Context) {
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
		}},
		{"cancel_after_begin", of(interop.DoCancelAfterBegin)},
		{"cancel_after_first_response", of(interop.DoCancelAfterFirstResponse)},
		{"timeout_on_sleeping_server", of(interop.DoTimeoutOnSleepingServer)},
		{"rpc_soak", func(ctx context.Context) {
			soak(ctx, 20, address, func() (*grpc.ClientConn, func()) { return conn, func() {} })
		}},
		{"channel_soak", func(ctx context.Context) {
			soak(ctx, 5, address, func() (*grpc.ClientConn, func()) { return connect(t, address) })
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			one.run(ctx)
		})
	}
}

// soak runs ten workers with large calls; each makes so many, and all must succeed.
func soak(ctx context.Context, each int, address string, channel func() (*grpc.ClientConn, func())) {
	const workers = 10
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize:                      271828,
		ResponseSize:                     314159,
		PerIterationMaxAcceptableLatency: time.Minute, // of a busy machine
		OverallTimeout:                   time.Minute,
		ServerAddr:                       address,
		NumWorkers:                       workers,
		Iterations:                       workers * each,
		ChannelForTest:                   channel,
	})
}

// serve serves grpc-go's test service over Boxcar.
func serve(t *testing.T) (address string) {
	services := boxcargrpc.NewServices(nil)
	testgrpc.RegisterTestServiceServer(services, interop.NewTestServer())
	server := boxcarrpc.NewServer(services.Handle, &boxcarrpc.ServerOptions{StreamHandler: services.HandleStream})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, boxcarrpc.ErrServerClosed)
	})
	return listener.Addr().String()
}

// connect makes a pool for a server, until end is called. Both may be called by any
// goroutine.
func connect(t *testing.T, address string) (conn *grpc.ClientConn, end func()) {
	pool, err := boxcarrpc.NewPool(discovery.Static(address), nil)
	assert.NoError(t, err)
	conn, err = boxcargrpc.NewClient(pool, nil)
	assert.NoError(t, err)
	return conn, func() {
		assert.NoError(t, conn.Close())
		assert.NoError(t, pool.Close())
	}
}
