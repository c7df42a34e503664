// Package otlptrace sends spans of requests to a collector of OpenTelemetry over HTTP: a
// server.Tracer for Boxcar and HTTP, with the stages of a request, an interceptor for gRPC, and
// a tracer of requests that are passed on.
package otlptrace

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarotel"
	"docstore/docservice/collection"
	"docstore/internal/buildinfo"
)

// otlpGrace is the maximum time to send the last spans to the collector.
const otlpGrace = 5 * time.Second

// Tracer is the server.Tracer of a collector.
type Tracer struct {
	provider *trace.TracerProvider
	log      *slog.Logger
}

// CheckURL returns an error if a URL is not that of a collector.
func CheckURL(collector string) error {
	u, err := url.Parse(collector)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("must be a URL like http://collector:4318")
	}
	return nil
}

// New returns a tracer for a collector. Its spans are of requests that clients trace; the
// variable OTEL_TRACES_SAMPLER can select more. An unreachable collector is not an error: its
// spans are lost, which is logged.
func New(ctx context.Context, collector string, log *slog.Logger) (*Tracer, error) {
	if err := CheckURL(collector); err != nil {
		return nil, err
	}
	u, err := url.Parse(collector)
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "docserviced"),
		attribute.String("service.version", buildinfo.Version())), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	options := []trace.TracerProviderOption{trace.WithBatcher(exporter), trace.WithResource(about)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, trace.WithSampler(trace.ParentBased(trace.NeverSample())))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing", "error", err) }))
	return &Tracer{trace.NewTracerProvider(options...), log}, nil
}

// Boxcar implements server.Tracer.
func (t *Tracer) Boxcar(o *boxcarrpc.ServerOptions, service *collection.Service) {
	boxcarotel.InstrumentServer(o, t.options())
	stages := t.provider.Tracer("docstore/cmd/docserviced")
	service.Trace(func(ctx context.Context) func(string) func() {
		if !oteltrace.SpanFromContext(ctx).IsRecording() {
			return nil
		}
		return func(stage string) func() {
			_, span := stages.Start(ctx, stage)
			return func() { span.End() }
		}
	})
}

func (t *Tracer) options() *boxcarotel.Options {
	return &boxcarotel.Options{TracerProvider: t.provider}
}

// Handler implements server.Tracer.
func (t *Tracer) Handler(h boxcarrpc.Handler) boxcarrpc.Handler {
	var o boxcarrpc.ServerOptions
	boxcarotel.InstrumentServer(&o, t.options())
	return o.Interceptors[0](h)
}

// HTTP implements server.Tracer. Headers are in the W3C format.
func (t *Tracer) HTTP(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	}
}

// TraceID implements server.Tracer.
func (t *Tracer) TraceID(ctx context.Context) string {
	if span := oteltrace.SpanContextFromContext(ctx); span.IsSampled() {
		return span.TraceID().String()
	}
	return ""
}

// Close implements server.Tracer.
func (t *Tracer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), otlpGrace)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans are lost", "error", err)
	}
}

// Pool traces the requests that are passed on to other servers.
func (t *Tracer) Pool(o *boxcarrpc.PoolOptions) {
	boxcarotel.InstrumentPool(o, t.options())
}

// Call is HTTP for the metadata of gRPC.
func (t *Tracer) Call(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	headers := propagation.MapCarrier{}
	for _, key := range (propagation.TraceContext{}).Fields() {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			headers.Set(key, values[0])
		}
	}
	return handler(propagation.TraceContext{}.Extract(ctx, headers), request)
}
