package boxcarprom_test

import (
	"context"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarprom"
	"docstore/boxcarrpc/discovery"
)

func Example() {
	metrics := boxcarprom.NewServer(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	server := boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return append(dst, request...), nil
	}, metrics.Instrument(&boxcarrpc.ServerOptions{}))
	metrics.Watch(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	defer server.Close()

	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), &boxcarrpc.PoolOptions{Size: 1})
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	for range 3 {
		if _, err := pool.Call(context.Background(), "/search.Jobs/Find", nil, nil); err != nil {
			panic(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() == "boxcar_server_slot" {
			slots := family.GetMetric()[0].GetHistogram()
			fmt.Println(slots.GetSampleCount(), "requests,", slots.GetBucket()[0].GetCumulativeCount(), "of them on slot 0")
		}
	}
	// Output: 3 requests, 3 of them on slot 0
}
