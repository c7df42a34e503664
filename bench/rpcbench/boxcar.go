package main

import (
	"context"
	"crypto/tls"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

func serveBoxcar() (string, error) { return listen(newBoxcarServer(nil).Serve) }

func serveBoxcarTLS() (string, error) {
	config, err := serverTLS()
	if err != nil {
		return "", err
	}
	options := &boxcarrpc.ServerOptions{TLS: func() (*tls.Config, error) { return config, nil }}
	return listen(newBoxcarServer(options).Serve)
}

func newBoxcarServer(options *boxcarrpc.ServerOptions) *boxcarrpc.Server {
	return boxcarrpc.NewServer(func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if err := slowDown(method); err != nil {
			return dst, err
		}
		return appendResponse(dst, request), nil
	}, options)
}

type boxcarClient struct{ *boxcarrpc.Pool }

func (c boxcarClient) call(ctx context.Context, _ int, request, dst []byte) ([]byte, error) {
	return c.Call(ctx, benchMethod, request, dst)
}

func connectBoxcar(address string, callers int) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers})
}

// connectClassic is a connection for each slot.
func connectClassic(address string, callers int) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers, LanesPerConn: 1})
}

func connectBoxcarTLS(address string, callers int) (client, error) {
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers, TLS: boxcarClientTLS})
}

func boxcarClientTLS() (*tls.Config, error) { return clientTLS, nil }

func connectPool(address string, options *boxcarrpc.PoolOptions) (boxcarClient, error) {
	pool, err := boxcarrpc.NewPool(discovery.Static(address), options)
	if err != nil {
		return boxcarClient{}, err
	}
	for pool.Stats().Slots < options.Size {
		time.Sleep(time.Millisecond)
	}
	return boxcarClient{pool}, nil
}
