package boxcargrpc_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
)

// A restartable server shuts down as after SIGTERM and restarts at the same address.
type restartable struct {
	address string
	server  *boxcarrpc.Server
	ended   chan error
}

func (r *restartable) start(t *testing.T) {
	services := boxcargrpc.NewServices(nil)
	testgrpc.RegisterTestServiceServer(services, &scripted{unary: echoUnary, duplex: echoDuplex})
	listener, err := net.Listen("tcp", r.address)
	require.NoError(t, err)
	r.address = listener.Addr().String()
	r.server = boxcarrpc.NewServer(services.Handle, &boxcarrpc.ServerOptions{StreamHandler: services.HandleStream})
	go func() { r.ended <- r.server.Serve(listener) }()
}

func (r *restartable) stop(t *testing.T) {
	require.NoError(t, r.server.Shutdown(soon(t)))
	require.ErrorIs(t, <-r.ended, boxcarrpc.ErrServerClosed)
}

// Every server is restarted several times under load. No call or stream fails.
func TestRollingRestart(t *testing.T) {
	const servers, rounds = 3, 3
	var all [servers]*restartable
	var addresses []string
	for i := range all {
		all[i] = &restartable{address: "127.0.0.1:0", ended: make(chan error, 1)}
		all[i].start(t)
		addresses = append(addresses, all[i].address)
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{Size: 16})
	require.NoError(t, err)
	conn, err := boxcargrpc.NewClient(pool, nil)
	require.NoError(t, err)
	client := testgrpc.NewTestServiceClient(conn)
	require.NoError(t, pool.WaitReady(soon(t)))

	var calls, streams atomic.Int64
	load, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for i := range 8 {
		one, count := func() error {
			_, err := client.UnaryCall(context.Background(), &testgrpc.SimpleRequest{Payload: payload("x")})
			return err
		}, &calls
		if i%2 == 1 {
			one, count = func() error { return talk(context.Background(), client) }, &streams
		}
		callers.Go(func() {
			for load.Err() == nil {
				if err := one(); err != nil {
					t.Error(err)
					return
				}
				count.Add(1)
			}
		})
	}
	for range rounds {
		for _, one := range all {
			one.stop(t)
			before := calls.Load() + streams.Load()
			until(t, func() bool { return calls.Load()+streams.Load() > before+100 || t.Failed() })
			one.start(t)
			until(t, func() bool { return one.server.Stats().Requests > 0 || t.Failed() })
		}
	}
	stop()
	callers.Wait()
	t.Logf("%d calls and %d streams during %d restarts", calls.Load(), streams.Load(), servers*rounds)
	require.NoError(t, conn.Close())
	require.NoError(t, pool.Close())
	for _, one := range all {
		one.stop(t)
	}
}

// talk runs a short stream.
func talk(ctx context.Context, client testgrpc.TestServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload("x")}); err != nil {
			_, err = stream.Recv()
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	_, err = stream.Recv()
	return ending(err)
}

func until(t *testing.T, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(deadline), "timeout")
	}
}
