package main

import (
	"context"
	"slices"
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

// contestantNamed returns a contestant. The name must exist.
func contestantNamed(name string) contestant {
	return contestants[slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })]
}
