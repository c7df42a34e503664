package boxcarprom

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

func BenchmarkNote(b *testing.B) {
	c := newCalls(Options{Prefix: "x"}, "", "", "")
	b.ReportAllocs()
	for b.Loop() {
		c.note("/docstore.v1.Documents/Get", boxcarrpc.CodeOK, 3, c.now())
	}
}

// BenchmarkCall measures the overhead of metrics for one caller's calls with a request of
// 16 bytes and a response of 1 KB, with client and server in one process over loopback:
// without interceptors, with interceptors that do nothing, with metrics of the server,
// and with metrics of both.
func BenchmarkCall(b *testing.B) {
	for _, with := range []string{"nothing", "interceptors", "server", "both"} {
		b.Run(fmt.Sprint("with=", with), func(b *testing.B) {
			server, client := &boxcarrpc.ServerOptions{}, &boxcarrpc.PoolOptions{Size: 1}
			switch with {
			case "interceptors":
				server.Interceptors = []func(boxcarrpc.Handler) boxcarrpc.Handler{throughHandler}
				client.Interceptors = []func(boxcarrpc.Caller) boxcarrpc.Caller{throughCaller}
			case "both":
				NewPool(nil).Instrument(client)
				fallthrough
			case "server":
				NewServer(nil).Instrument(server)
			}
			benchmarkCall(b, server, client)
		})
	}
}

func throughHandler(next boxcarrpc.Handler) boxcarrpc.Handler {
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		return next(ctx, method, request, dst)
	}
}

func throughCaller(next boxcarrpc.Caller) boxcarrpc.Caller {
	return func(ctx context.Context, method string, request, dst []byte, info *boxcarrpc.CallInfo) ([]byte, error) {
		return next(ctx, method, request, dst, info)
	}
}

func benchmarkCall(b *testing.B, serverOptions *boxcarrpc.ServerOptions, poolOptions *boxcarrpc.PoolOptions) {
	response := make([]byte, 1024)
	server := boxcarrpc.NewServer(func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		return append(dst, response...), nil
	}, serverOptions)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), poolOptions)
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	require.NoError(b, pool.WaitReady(ctx))
	request, dst := make([]byte, 16), make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		out, err := pool.Call(b.Context(), "/docstore.v1.Documents/Get", request, dst)
		if err != nil || len(out) != len(response) {
			b.Fatalf("%d bytes, %v", len(out), err)
		}
	}
	require.NoError(b, pool.Close())
	require.NoError(b, server.Close())
	require.ErrorIs(b, <-ended, boxcarrpc.ErrServerClosed)
}
