package server

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
)

// A Source opens the collections that are not in a queue directory of this machine. Its
// methods are called one at a time.
type Source interface {
	// Start is called once, with open listeners and before the first Open.
	Start(*Server) (Parts, error)
	// Open opens a collection and adds what it serves to the service of the server.
	Open(Collection, *collection.Options) (Held, error)
	// Close closes what Start opened. The listeners and all Held are closed.
	Close() error
}

// Parts are what a Source adds to a server.
type Parts struct {
	// Boxcar completes the options of the Boxcar listener; nil: nothing is added.
	Boxcar     func(*boxcarrpc.ServerOptions)
	Routes     func(*http.ServeMux) // adds HTTP paths; nil: none
	Collectors []prometheus.Collector
}

// A Protocol serves documents over another protocol than Boxcar and HTTP.
type Protocol interface {
	// Name names the listener in the log and in metrics.
	Name() string
	// Open opens the listener.
	Open(*Server) error
	// Start serves requests by the handler, until Close.
	Start(boxcarrpc.Handler)
	// Shutdown finishes the requests in flight until ctx ends, and returns its error if any
	// were aborted.
	Shutdown(ctx context.Context) error
	// Close closes the listener and aborts requests in flight.
	Close() error
}

// A Tracer creates spans of requests and their stages.
type Tracer interface {
	// Boxcar traces the requests of the Boxcar listener and their stages.
	Boxcar(*boxcarrpc.ServerOptions, *collection.Service)
	// Handler traces the requests of another listener, whose contexts have the trace of the
	// client.
	Handler(boxcarrpc.Handler) boxcarrpc.Handler
	// HTTP gives the context of each request the trace of its headers.
	HTTP(http.HandlerFunc) http.HandlerFunc
	// TraceID returns the trace of a context; empty: none, or it is not recorded.
	TraceID(context.Context) string
	// Close sends the last spans.
	Close()
}

// noTracer is the Tracer of a server without one.
type noTracer struct{}

func (noTracer) Boxcar(*boxcarrpc.ServerOptions, *collection.Service) {}
func (noTracer) Handler(next boxcarrpc.Handler) boxcarrpc.Handler     { return next }
func (noTracer) HTTP(next http.HandlerFunc) http.HandlerFunc          { return next }
func (noTracer) TraceID(context.Context) string                       { return "" }
func (noTracer) Close()                                               {}
