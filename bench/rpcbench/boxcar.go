package main

import (
	"context"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

func serveBoxcar() (string, error) {
	return listen(boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return appendResponse(dst, request), nil
	}, nil).Serve)
}

// appendResponse is what every contestant answers: the request and padding.
func appendResponse(dst, request []byte) []byte {
	return append(append(dst, request...), padding[:]...)
}

var padding [responseBytes - requestBytes]byte

type boxcarClient struct{ *boxcarrpc.Pool }

func (c boxcarClient) call(ctx context.Context, _ int, request, dst []byte) ([]byte, error) {
	return c.Call(ctx, "/bench/Call", request, dst)
}

func connectBoxcar(address string, callers int) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers})
}

// connectClassic is a connection for each slot.
func connectClassic(address string, callers int) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers, LanesPerConn: 1})
}

func connectPool(address string, options *boxcarrpc.PoolOptions) (client, error) {
	pool, err := boxcarrpc.NewPool(discovery.Static(address), options)
	if err != nil {
		return nil, err
	}
	for pool.Stats().Slots < options.Size {
		time.Sleep(time.Millisecond)
	}
	return boxcarClient{pool}, nil
}
