package main

import (
	"context"
	"fmt"
)

// A contestant is a way to make a call.
type contestant struct {
	name  string
	serve func() (address string, err error)
	// connect returns a client for a number of callers.
	connect func(address string, callers int) (client, error)
}

// A client makes calls.
type client interface {
	// call sends the request and returns the response, which can use dst. Callers use it
	// concurrently, each with its number.
	call(ctx context.Context, caller int, request, dst []byte) ([]byte, error)
	Close() error
}

var contestants = []contestant{
	{"echo", serveEcho, connectEcho},
	{"boxcar", serveBoxcar, connectBoxcar},
	{"boxcar-classic", serveBoxcar, connectClassic},
	{"boxcar-tls", serveBoxcarTLS, connectBoxcarTLS},
	{"grpc-go-1", serveGRPC, connectGRPC(1)},
	{"grpc-go-2", serveGRPC, connectGRPC(2)},
	{"grpc-go-4", serveGRPC, connectGRPC(4)},
	{"grpc-go-tls-1", serveGRPCTLS, connectGRPCTLS(1)},
	{"grpc-go-tls-2", serveGRPCTLS, connectGRPCTLS(2)},
	{"grpc-go-tls-4", serveGRPCTLS, connectGRPCTLS(4)},
	{"drpc", serveDRPC, connectDRPC},
	{"http", serveHTTP, connectHTTP},
}

func contestantsNamed(names ...string) (all []contestant, err error) {
	for _, name := range names {
		c, ok := named(contestants, name, func(c contestant) string { return c.name })
		if !ok {
			return nil, fmt.Errorf("no contestant %q", name)
		}
		all = append(all, c)
	}
	return all, nil
}

func named[T any](list []T, name string, of func(T) string) (found T, ok bool) {
	for _, x := range list {
		if of(x) == name {
			return x, true
		}
	}
	return found, false
}
