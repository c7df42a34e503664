package boxcarotel_test

import (
	"context"
	"fmt"
	"net"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarotel"
	"docstore/boxcarrpc/discovery"
)

func Example() {
	spans := tracetest.NewInMemoryExporter()
	options := &boxcarotel.Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(spans))}
	server := boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return append(dst, request...), nil
	}, boxcarotel.InstrumentServer(&boxcarrpc.ServerOptions{}, options))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	defer server.Close()

	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), boxcarotel.InstrumentPool(&boxcarrpc.PoolOptions{}, options))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if _, err := pool.Call(context.Background(), "/search.Jobs/Find", nil, nil); err != nil {
		panic(err)
	}
	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name)
	}
	// Output:
	// server search.Jobs/Find
	// client search.Jobs/Find
}
