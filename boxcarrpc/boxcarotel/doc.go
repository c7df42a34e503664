// Package boxcarotel traces calls and streams of boxcarrpc with OpenTelemetry.
//
//	server := boxcarrpc.NewServer(handler, boxcarotel.InstrumentServer(&boxcarrpc.ServerOptions{}, nil))
//	pool, err := boxcarrpc.NewPool(source, boxcarotel.InstrumentPool(&boxcarrpc.PoolOptions{}, nil))
//
// A call or stream has one span of kind client, which includes all attempts, and one of
// kind server around its handler. The trace context is sent in the request's metadata in
// the W3C format, traceparent and tracestate, unless the metadata is too large for it; then
// the server's span starts a new trace. A handler continues the trace if it makes
// calls with its context.
//
// A span has the name of the method and the attributes of OpenTelemetry's conventions
// for RPC: rpc.system (boxcar), rpc.service, rpc.method, the peer's address, and the
// code as rpc.boxcar.status_code. boxcar.slot is the slot of the request; spans of kind
// client also have boxcar.attempts. The status of a client span is an error for every
// code but OK, that of a server span only for codes that indicate a fault of the server.
//
// Calls that are not sampled have the cost of creating and sending their context.
//
// All functions are safe for concurrent use.
package boxcarotel
