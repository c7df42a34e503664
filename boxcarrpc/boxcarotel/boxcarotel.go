package boxcarotel

import (
	"context"
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"docstore/boxcarrpc"
)

// scope is the instrumentation scope of the spans.
const scope = "docstore/boxcarrpc/boxcarotel"

// Attributes specific to Boxcar.
const (
	StatusCodeKey = attribute.Key("rpc.boxcar.status_code") // number of the gRPC code
	SlotKey       = attribute.Key("boxcar.slot")
	AttemptsKey   = attribute.Key("boxcar.attempts")
)

// Options are the options of tracing. The zero value of each field, and nil, mean the
// default.
type Options struct {
	// TracerProvider creates the spans. The default is the global one.
	TracerProvider trace.TracerProvider
	// Propagator writes the trace context to metadata. The default is the W3C format
	// without baggage.
	Propagator propagation.TextMapPropagator
}

// A tracer has the shared state of the interceptors.
type tracer struct {
	trace.Tracer
	propagation.TextMapPropagator
}

func newTracer(o *Options) tracer {
	var r Options
	if o != nil {
		r = *o
	}
	if r.TracerProvider == nil {
		r.TracerProvider = otel.GetTracerProvider()
	}
	if r.Propagator == nil {
		r.Propagator = propagation.TraceContext{}
	}
	return tracer{r.TracerProvider.Tracer(scope), r.Propagator}
}

// InstrumentServer adds interceptors to the options of a server, as the outermost, and
// returns the options. o may be nil.
func InstrumentServer(options *boxcarrpc.ServerOptions, o *Options) *boxcarrpc.ServerOptions {
	t := newTracer(o)
	options.Interceptors = append([]func(boxcarrpc.Handler) boxcarrpc.Handler{t.handler}, options.Interceptors...)
	options.StreamInterceptors = append([]func(boxcarrpc.StreamHandler) boxcarrpc.StreamHandler{t.streamHandler}, options.StreamInterceptors...)
	return options
}

// InstrumentPool adds interceptors to the options of a pool, as the outermost, and
// returns the options. o may be nil.
func InstrumentPool(options *boxcarrpc.PoolOptions, o *Options) *boxcarrpc.PoolOptions {
	t := newTracer(o)
	options.Interceptors = append([]func(boxcarrpc.Caller) boxcarrpc.Caller{t.caller}, options.Interceptors...)
	options.StreamInterceptors = append([]func(boxcarrpc.StreamOpener) boxcarrpc.StreamOpener{t.streamOpener}, options.StreamInterceptors...)
	return options
}

func (t tracer) handler(next boxcarrpc.Handler) boxcarrpc.Handler {
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		ctx, span := t.serve(ctx, method)
		defer span.End()
		returned := false
		defer func() { panicked(span, returned) }()
		out, err := next(ctx, method, request, dst)
		returned = true
		served(span, err)
		return out, err
	}
}

func (t tracer) streamHandler(next boxcarrpc.StreamHandler) boxcarrpc.StreamHandler {
	return func(ctx context.Context, method string, stream *boxcarrpc.ServerStream) error {
		ctx, span := t.serve(ctx, method)
		defer span.End()
		returned := false
		defer func() { panicked(span, returned) }()
		err := next(ctx, method, stream)
		returned = true
		served(span, err)
		return err
	}
}

// serve starts a span of kind server.
func (t tracer) serve(ctx context.Context, method string) (context.Context, trace.Span) {
	metadata := boxcarrpc.MetadataOf(ctx)
	ctx, span := t.Start(t.Extract(ctx, carrier{&metadata}), spanName(method), trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		describe(span, method)
		if peer := boxcarrpc.PeerOf(ctx); peer != nil {
			describeAddress(span, "client", peer.Address)
		}
		if slot := boxcarrpc.SlotOf(ctx); slot >= 0 {
			span.SetAttributes(SlotKey.Int(slot))
		}
	}
	return ctx, span
}

// served ends a span of kind server with its code.
func served(span trace.Span, err error) {
	code := boxcarrpc.CodeOf(err)
	span.SetAttributes(StatusCodeKey.Int(int(code)))
	switch code {
	case boxcarrpc.CodeUnknown, boxcarrpc.CodeDeadlineExceeded, boxcarrpc.CodeUnimplemented,
		boxcarrpc.CodeInternal, boxcarrpc.CodeUnavailable, boxcarrpc.CodeDataLoss:
		span.SetStatus(codes.Error, err.Error())
	}
}

// panicked ends the span of a handler that has panicked.
func panicked(span trace.Span, returned bool) {
	if !returned {
		served(span, errPanicked)
	}
}

var errPanicked error = &boxcarrpc.Error{Code: boxcarrpc.CodeInternal, Message: "the handler panicked"}

func (t tracer) caller(next boxcarrpc.Caller) boxcarrpc.Caller {
	return func(ctx context.Context, method string, request, dst []byte, info *boxcarrpc.CallInfo) ([]byte, error) {
		ctx, span := t.call(ctx, method, &info.Metadata)
		defer span.End()
		out, err := next(ctx, method, request, dst, info)
		if span.IsRecording() {
			span.SetAttributes(AttemptsKey.Int(info.Attempts))
			if info.Server != nil {
				describeAddress(span, "server", info.Server.Address)
				span.SetAttributes(SlotKey.Int(info.Slot))
			}
		}
		called(span, err)
		return out, err
	}
}

func (t tracer) streamOpener(next boxcarrpc.StreamOpener) boxcarrpc.StreamOpener {
	return func(ctx context.Context, method string, metadata boxcarrpc.Metadata) (*boxcarrpc.ClientStream, error) {
		ctx, span := t.call(ctx, method, &metadata)
		stream, err := next(ctx, method, metadata)
		if err != nil {
			called(span, err)
			span.End()
			return nil, err
		}
		if span.IsRecording() {
			describeAddress(span, "server", stream.Peer().Address)
		}
		stream.OnEnd(func(err error) {
			called(span, err)
			span.End()
		})
		return stream, nil
	}
}

// call starts a span of kind client and adds its trace context to metadata, if there is
// room: tracing must not fail a call.
func (t tracer) call(ctx context.Context, method string, metadata *boxcarrpc.Metadata) (context.Context, trace.Span) {
	ctx, span := t.Start(ctx, spanName(method), trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		describe(span, method)
	}
	traced := (*metadata)[:len(*metadata):len(*metadata)] // do not append to the caller's slice
	if t.Inject(ctx, carrier{&traced}); len(traced) <= boxcarrpc.MaxMetadataBytes {
		*metadata = traced
	}
	return ctx, span
}

// called ends a span of kind client with its code.
func called(span trace.Span, err error) {
	span.SetAttributes(StatusCodeKey.Int(int(boxcarrpc.CodeOf(err))))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

// spanName returns a method without its leading slash, as the conventions require.
func spanName(method string) string {
	return strings.ToValidUTF8(strings.TrimPrefix(method, "/"), "?")
}

// describe sets the attributes of a method.
func describe(span trace.Span, method string) {
	name := spanName(method)
	attributes := []attribute.KeyValue{attribute.String("rpc.system", "boxcar")}
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		attributes = append(attributes, attribute.String("rpc.service", name[:i]))
		name = name[i+1:]
	}
	span.SetAttributes(append(attributes, attribute.String("rpc.method", name))...)
}

// describeAddress sets the attributes of a client's or server's address.
func describeAddress(span trace.Span, whose string, address net.Addr) {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		host = address.String()
	}
	span.SetAttributes(attribute.String(whose+".address", host))
	if n, err := strconv.Atoi(port); err == nil {
		span.SetAttributes(attribute.Int(whose+".port", n))
	}
}

// A carrier is metadata with the interface of propagators.
type carrier struct{ metadata *boxcarrpc.Metadata }

func (c carrier) Get(key string) string {
	value, _ := c.metadata.Get(key)
	return value
}

func (c carrier) Set(key, value string) { *c.metadata = c.metadata.Append(key, value) }

func (c carrier) Keys() []string {
	var keys []string
	for key := range c.metadata.All() {
		keys = append(keys, key)
	}
	return keys
}
