// Package boxcarotel traces calls and streams of boxcarrpc with OpenTelemetry.
//
//	server := boxcarrpc.NewServer(handler, boxcarotel.InstrumentServer(&boxcarrpc.ServerOptions{}, nil))
//	pool, err := boxcarrpc.NewPool(source, boxcarotel.InstrumentPool(&boxcarrpc.PoolOptions{}, nil))
//
// A call has a span of kind client, whatever the attempts that it takes, and one of
// kind server around its handler, whose context has it; so have streams. The context of
// the trace travels in the request's metadata, as W3C has it: traceparent and
// tracestate. A handler that calls on with its context continues the trace.
//
// Spans are named by the method and have, as OpenTelemetry's conventions for RPC
// have it, rpc.system (boxcar), rpc.service, rpc.method, the peer's address, and the
// code as rpc.boxcar.status_code; beside them boxcar.slot, the slot that the request
// came on, and on the client boxcar.attempts. A span is an error by its code: on the
// server only if that blames the server.
//
// What is not sampled has its cost, too, as its context is made and carried; who wants
// none of that does not instrument. All is safe for concurrent use.
package boxcarotel
