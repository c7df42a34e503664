package main

import (
	"context"
	"crypto/tls"
	"time"

	"docstore/bench/internal/authority"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

// serveBoxcar serves any number of clients that have the same address.
func serveBoxcar(config *tls.Config) (string, error) {
	return listen(boxcarrpc.NewServer(func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if err := slowDown(method); err != nil {
			return dst, err
		}
		return appendResponse(dst, request), nil
	}, &boxcarrpc.ServerOptions{TLS: authority.Always(config), ClientShare: 1}).Serve)
}

type boxcarClient struct {
	*boxcarrpc.Pool
	method string
}

func (c boxcarClient) call(ctx context.Context, _ int, request, dst []byte) ([]byte, error) {
	return c.Call(ctx, c.method, request, dst)
}

func connectBoxcar(address string, callers int, config *tls.Config) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers, TLS: authority.Always(config)})
}

// connectClassic is a connection for each slot.
func connectClassic(address string, callers int, _ *tls.Config) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers, LanesPerConn: 1})
}

func connectPool(address string, options *boxcarrpc.PoolOptions) (boxcarClient, error) {
	pool, err := boxcarrpc.NewPool(discovery.Static(address), options)
	if err != nil {
		return boxcarClient{}, err
	}
	for pool.Stats().Slots < options.Size {
		time.Sleep(time.Millisecond)
	}
	return boxcarClient{pool, benchMethod}, nil
}
