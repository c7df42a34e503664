package main

import (
	"context"
	"crypto/tls"
	"slices"

	"docstore/bench/internal/authority"
)

// A contestant is a way to make a call. Without TLS its functions get a nil configuration.
type contestant struct {
	name  string
	tls   bool
	serve func(*tls.Config) (address string, err error)
	// connect returns a client for a number of callers.
	connect func(address string, callers int, config *tls.Config) (client, error)
}

// A client makes calls.
type client interface {
	// call sends the request and returns the response, which can use dst. Callers use it
	// concurrently, each with its number.
	call(ctx context.Context, caller int, request, dst []byte) ([]byte, error)
	Close() error
}

var contestants = []contestant{
	{"echo", false, serveEcho, connectEcho},
	{"boxcar", false, serveBoxcar, connectBoxcar},
	{"boxcar-classic", false, serveBoxcar, connectClassic},
	{"boxcar-tls", true, serveBoxcar, connectBoxcar},
	{"grpc-go-1", false, serveGRPC, connectGRPC(1)},
	{"grpc-go-2", false, serveGRPC, connectGRPC(2)},
	{"grpc-go-4", false, serveGRPC, connectGRPC(4)},
	{"grpc-go-tls-1", true, serveGRPC, connectGRPC(1)},
	{"grpc-go-tls-2", true, serveGRPC, connectGRPC(2)},
	{"grpc-go-tls-4", true, serveGRPC, connectGRPC(4)},
	{"drpc", false, serveDRPC, connectDRPC},
	{"http", false, serveHTTP, connectHTTP},
}

// contestantNamed returns a contestant. The name must exist.
func contestantNamed(name string) contestant {
	return contestants[slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })]
}

// start starts the server in this process, which generates its certificate.
func (c contestant) start() (address string, err error) {
	if !c.tls {
		return c.serve(nil)
	}
	a, err := authority.New()
	if err != nil {
		return "", err
	}
	certificate, err := a.Issue()
	if err != nil {
		return "", err
	}
	return c.serve(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
}

// dial connects to a server, whose certificate it does not check. Handshakes are not measured.
func (c contestant) dial(address string, callers int) (client, error) {
	if !c.tls {
		return c.connect(address, callers, nil)
	}
	return c.connect(address, callers, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // see above
}
