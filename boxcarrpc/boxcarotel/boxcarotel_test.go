package boxcarotel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A traced collects the spans of a test's servers and pools.
type traced struct {
	spans   *tracetest.InMemoryExporter
	options *Options
}

func newTraced(sampler sdk.Sampler) *traced {
	t := &traced{spans: tracetest.NewInMemoryExporter()}
	t.options = &Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(t.spans), sdk.WithSampler(sampler))}
	return t
}

// serve serves until the end of the test.
func serve(t *testing.T, h boxcarrpc.Handler, o *boxcarrpc.ServerOptions) (address string) {
	server := boxcarrpc.NewServer(h, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, boxcarrpc.ErrServerClosed)
	})
	return l.Addr().String()
}

func newPool(t *testing.T, o *boxcarrpc.PoolOptions, address string) *boxcarrpc.Pool {
	pool, err := boxcarrpc.NewPool(discovery.Static(address), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// span waits for a span with this name and kind.
func (r *traced) span(t *testing.T, kind trace.SpanKind, name string) tracetest.SpanStub {
	for deadline := time.Now().Add(30 * time.Second); ; {
		for _, span := range r.spans.GetSpans() {
			if span.SpanKind == kind && span.Name == name {
				return span
			}
		}
		require.True(t, time.Now().Before(deadline), "no span of %s", name)
		time.Sleep(time.Millisecond)
	}
}

func attributes(span tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range span.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

// A trace continues from a program through one server to another.
func TestTraceContinuesThroughServers(t *testing.T) {
	r := newTraced(sdk.AlwaysSample())
	metadata := make(chan boxcarrpc.Metadata, 1)
	behind := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		metadata <- boxcarrpc.MetadataOf(ctx)
		return append(dst, "deep"...), nil
	}, InstrumentServer(&boxcarrpc.ServerOptions{}, r.options))
	between := newPool(t, InstrumentPool(&boxcarrpc.PoolOptions{}, r.options), behind)
	front := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		return between.Call(ctx, "/jobs.v1.Store/Get", nil, dst)
	}, InstrumentServer(&boxcarrpc.ServerOptions{}, r.options))
	pool := newPool(t, InstrumentPool(&boxcarrpc.PoolOptions{Size: 1}, r.options), front)

	ctx, program := r.options.TracerProvider.Tracer("test").Start(t.Context(), "program")
	sent := boxcarrpc.Metadata(nil).Append("k", "v")
	out, err := pool.CallWith(ctx, "/jobs.v1.Search/Find", nil, nil, &boxcarrpc.CallInfo{Metadata: sent})
	require.NoError(t, err)
	require.Equal(t, "deep", string(out))
	program.End()

	parent := program.SpanContext()
	for _, want := range []struct {
		kind trace.SpanKind
		name string
	}{
		{trace.SpanKindClient, "jobs.v1.Search/Find"},
		{trace.SpanKindServer, "jobs.v1.Search/Find"},
		{trace.SpanKindClient, "jobs.v1.Store/Get"},
		{trace.SpanKindServer, "jobs.v1.Store/Get"},
	} {
		span := r.span(t, want.kind, want.name)
		require.Equal(t, parent.TraceID(), span.SpanContext.TraceID(), want.name)
		require.Equal(t, parent.SpanID(), span.Parent.SpanID(), want.name)
		require.Equal(t, codes.Unset, span.Status.Code)
		parent = span.SpanContext
	}
	traceparent, _ := (<-metadata).Get("traceparent")
	require.Equal(t, "00-"+parent.TraceID().String()+"-"+r.span(t, trace.SpanKindClient, "jobs.v1.Store/Get").SpanContext.SpanID().String()+"-01", traceparent)
	require.Equal(t, boxcarrpc.Metadata(nil).Append("k", "v"), sent, "the caller's metadata is unchanged")

	host, port, _ := net.SplitHostPort(front)
	require.Equal(t, map[attribute.Key]string{
		"rpc.system": "boxcar", "rpc.service": "jobs.v1.Search", "rpc.method": "Find", "rpc.boxcar.status_code": "0",
		"boxcar.slot": "0", "boxcar.attempts": "1", "server.address": host, "server.port": port,
	}, attributes(r.span(t, trace.SpanKindClient, "jobs.v1.Search/Find")))
	server := attributes(r.span(t, trace.SpanKindServer, "jobs.v1.Search/Find"))
	require.Equal(t, "127.0.0.1", server["client.address"])
	require.Equal(t, "0", server["boxcar.slot"])
	require.NotContains(t, server, AttemptsKey)
}

func TestHowSpansEnd(t *testing.T) {
	r := newTraced(sdk.AlwaysSample())
	address := serve(t, func(_ context.Context, method string, _, dst []byte) ([]byte, error) {
		switch method {
		case "none":
			return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound, Message: "none"}
		case "panic":
			panic("ouch")
		}
		return dst, errors.New("broken")
	}, InstrumentServer(&boxcarrpc.ServerOptions{StreamHandler: func(ctx context.Context, method string, _ *boxcarrpc.ServerStream) error {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			return errors.New("no span")
		}
		if method == "stream panic" {
			panic("ouch")
		}
		return &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound, Message: "none"}
	}}, r.options))
	pool := newPool(t, InstrumentPool(&boxcarrpc.PoolOptions{MaxRetries: -1}, r.options), address)
	for _, c := range []struct {
		method         string
		client, server codes.Code
		code           string
	}{
		{"none", codes.Error, codes.Unset, "5"},
		{"panic", codes.Error, codes.Error, "13"},
		{"break", codes.Error, codes.Error, "2"},
		{"stream none", codes.Error, codes.Unset, "5"},
		{"stream panic", codes.Error, codes.Error, "13"},
	} {
		if c.method[:3] == "str" {
			stream, err := pool.Stream(t.Context(), c.method, nil)
			require.NoError(t, err)
			_, err = stream.Receive(nil)
			require.Error(t, err)
		} else {
			_, err := pool.Call(t.Context(), c.method, nil, nil)
			require.Error(t, err)
		}
		client, server := r.span(t, trace.SpanKindClient, c.method), r.span(t, trace.SpanKindServer, c.method)
		require.Equal(t, c.client, client.Status.Code, c.method)
		require.Equal(t, c.server, server.Status.Code, c.method)
		require.Equal(t, c.code, attributes(client)[StatusCodeKey], c.method)
		require.Equal(t, c.code, attributes(server)[StatusCodeKey], c.method)
		require.Equal(t, client.SpanContext.SpanID(), server.Parent.SpanID(), c.method)
	}
	require.NoError(t, pool.Close())
	_, err := pool.Stream(t.Context(), "late", nil)
	require.ErrorIs(t, err, boxcarrpc.ErrPoolClosed)
	require.Equal(t, codes.Error, r.span(t, trace.SpanKindClient, "late").Status.Code)
	_, err = pool.Call(t.Context(), "later", nil, nil)
	require.ErrorIs(t, err, boxcarrpc.ErrPoolClosed)
	require.NotContains(t, attributes(r.span(t, trace.SpanKindClient, "later")), SlotKey)
}

// The caller's sampling decision is sent to the servers.
func TestCallerDecidesSampling(t *testing.T) {
	client, server := newTraced(sdk.NeverSample()), newTraced(sdk.ParentBased(sdk.AlwaysSample()))
	got := make(chan boxcarrpc.Metadata, 1)
	address := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		got <- boxcarrpc.MetadataOf(ctx)
		return dst, nil
	}, InstrumentServer(&boxcarrpc.ServerOptions{}, server.options))
	_, err := newPool(t, InstrumentPool(&boxcarrpc.PoolOptions{}, client.options), address).Call(t.Context(), "m", nil, nil)
	require.NoError(t, err)
	traceparent, ok := (<-got).Get("traceparent")
	require.True(t, ok)
	require.Equal(t, "-00", traceparent[len(traceparent)-3:])
	require.Empty(t, client.spans.GetSpans())

	_, err = newPool(t, nil, address).Call(t.Context(), "plain", nil, nil)
	require.NoError(t, err)
	require.Nil(t, <-got)
	require.False(t, server.span(t, trace.SpanKindServer, "plain").Parent.IsValid(), "a new trace")
	require.Len(t, server.spans.GetSpans(), 1)
}

// Metadata at its limit is sent without the trace context; the call and the stream do not
// fail.
func TestTracingDoesNotExceedTheLimitOfMetadata(t *testing.T) {
	r := newTraced(sdk.AlwaysSample())
	got := make(chan boxcarrpc.Metadata, 1)
	address := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		got <- boxcarrpc.MetadataOf(ctx)
		return dst, nil
	}, &boxcarrpc.ServerOptions{StreamHandler: func(_ context.Context, _ string, stream *boxcarrpc.ServerStream) error {
		got <- stream.Metadata()
		return nil
	}})
	pool := newPool(t, InstrumentPool(&boxcarrpc.PoolOptions{}, r.options), address)
	for _, free := range []int{0, 10} {
		full := boxcarrpc.Metadata(nil).Append("k", strings.Repeat("v", boxcarrpc.MaxMetadataBytes-4-free))
		require.Equal(t, boxcarrpc.MaxMetadataBytes-free, len(full))
		_, err := pool.CallWith(t.Context(), "call", nil, nil, &boxcarrpc.CallInfo{Metadata: full})
		require.NoError(t, err)
		require.True(t, bytes.Equal(full, <-got))
		stream, err := pool.Stream(t.Context(), "stream", full)
		require.NoError(t, err)
		_, err = stream.Receive(nil)
		require.ErrorIs(t, err, io.EOF)
		require.True(t, bytes.Equal(full, <-got))
	}
}

func TestACarrierIsMetadata(t *testing.T) {
	var m boxcarrpc.Metadata
	c := carrier{&m}
	c.Set("a", "1")
	c.Set("b", "2")
	require.Equal(t, "2", c.Get("b"))
	require.Empty(t, c.Get("c"))
	require.True(t, slices.Equal([]string{"a", "b"}, c.Keys()))
	require.Implements(t, (*propagation.TextMapCarrier)(nil), c)
}
