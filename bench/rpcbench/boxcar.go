package main

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

func serveBoxcar() (string, error) { return listen(newBoxcarServer().Serve) }

func serveBoxcarTLS() (string, error) { return listenTLS(newBoxcarServer().Serve) }

func newBoxcarServer() *boxcarrpc.Server {
	return boxcarrpc.NewServer(func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if err := slowDown(method); err != nil {
			return dst, err
		}
		return appendResponse(dst, request), nil
	}, nil)
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
	return connectPool(address, &boxcarrpc.PoolOptions{Size: callers, Dialer: dialTLS})
}

func dialTLS(ctx context.Context, address string) (net.Conn, error) {
	d := tls.Dialer{Config: clientTLS}
	return d.DialContext(ctx, "tcp", address)
}

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
