package simulate

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarotel"
)

const (
	echoIP      = "10.0.5.1"
	echoAddress = echoIP + ":7070"
)

// curves is the cheapest key exchange.
var curves = []tls.CurveID{tls.X25519}

// echoService is a service that others have built with boxcarrpc. It uses what servers of documents
// do not: TLS, metadata, traces, custom error codes. No fault concerns it and its clients, so each
// call has one right result.
type echoService struct {
	w           *world
	credentials *credentials
	config      atomic.Pointer[tls.Config]
	revoked     time.Time // when the second authority is no longer accepted
}

// serveEcho runs the service and its clients until ctx ends.
func (w *world) serveEcho(ctx context.Context) {
	c, err := newCredentials()
	w.must(err)
	d := w.chance.Next("echo")
	e := &echoService{w: w, credentials: c, revoked: w.start.Add(d.Duration(w.config.Work/4, w.config.Work/2))}
	both := &tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: curves, Certificates: []tls.Certificate{c.of[echoName]}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.both}
	kept := both.Clone()
	kept.ClientCAs = c.kept
	e.config.Store(both)
	revoke := time.AfterFunc(time.Until(e.revoked), func() { e.config.Store(kept) })
	defer revoke.Stop()
	server := boxcarrpc.NewServer(e.handle, boxcarotel.InstrumentServer(&boxcarrpc.ServerOptions{
		TLS: func() (*tls.Config, error) { return e.config.Load(), nil }, Name: "echo", Logger: w.log.logger("echo"),
		StreamHandler: e.wait,
	}, &boxcarotel.Options{TracerProvider: noop.NewTracerProvider()}))
	process := w.network.Host(echoIP, "a").Boot()
	defer process.Kill()
	l, err := process.Listen(echoAddress)
	w.must(err)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) }) // until Close
	var clients sync.WaitGroup
	for _, client := range []func(context.Context){e.call, e.nameless, e.revokedClient, e.revokedWatch} {
		clients.Go(func() { client(ctx) })
	}
	clients.Wait()
	w.must(server.Close())
	running.Wait()
}

// handle serves "echo", and "fail" with the code in the request.
func (e *echoService) handle(_ context.Context, method string, request, dst []byte) ([]byte, error) {
	if method == "fail" {
		return dst, &boxcarrpc.Error{Code: boxcarrpc.Code(binary.BigEndian.Uint32(request)), Message: "as requested"}
	}
	return append(dst, request...), nil
}

// wait serves a stream that sends nothing.
func (e *echoService) wait(ctx context.Context, _ string, _ *boxcarrpc.ServerStream) error {
	<-ctx.Done()
	return ctx.Err()
}
