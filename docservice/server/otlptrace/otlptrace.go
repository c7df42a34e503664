package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"
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
	"docstore/cmd/internal/cli"
	"docstore/docservice/collection"
	"docstore/internal/buildinfo"
)

// otlpGrace is the maximum time to send the last spans to the collector.
const otlpGrace = 5 * time.Second

// tracing holds the flag of the trace collector.
type tracing struct{ url string }

func (t *tracing) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.url, "otlp", "", "OpenTelemetry collector for OTLP over HTTP, for example http://collector:4318; "+
		"it receives spans of requests that their clients trace, with the stages index and segments, and of those passed on; "+
		"OTEL_TRACES_SAMPLER can select more")
}

func (t *tracing) check() error {
	if t.url == "" {
		return nil
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return cli.Usagef("--otlp %s: must be a URL like http://collector:4318", t.url)
	}
	return nil
}

// tracer is the daemon.Tracer of a collector. A nil tracer traces nothing.
type tracer struct {
	provider *trace.TracerProvider
	log      *slog.Logger
}

// open returns the source of spans, nil if tracing is disabled. An unreachable collector is
// not an error: its spans are lost, which is logged.
func (t *tracing) open(ctx context.Context, env *cli.Env) (*tracer, error) {
	if t.url == "" {
		return nil, nil
	}
	u, err := url.Parse(t.url)
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
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { env.Log.Warn("tracing", "error", err) }))
	return &tracer{trace.NewTracerProvider(options...), env.Log}, nil
}

// Boxcar implements daemon.Tracer.
func (t *tracer) Boxcar(o *boxcarrpc.ServerOptions, service *collection.Service) {
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

func (t *tracer) options() *boxcarotel.Options {
	return &boxcarotel.Options{TracerProvider: t.provider}
}

// Handler implements daemon.Tracer.
func (t *tracer) Handler(h boxcarrpc.Handler) boxcarrpc.Handler {
	var o boxcarrpc.ServerOptions
	boxcarotel.InstrumentServer(&o, t.options())
	return o.Interceptors[0](h)
}

// HTTP implements daemon.Tracer. Headers are in the W3C format.
func (t *tracer) HTTP(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	}
}

// TraceID implements daemon.Tracer.
func (t *tracer) TraceID(ctx context.Context) string {
	if span := oteltrace.SpanContextFromContext(ctx); span.IsSampled() {
		return span.TraceID().String()
	}
	return ""
}

// Close implements daemon.Tracer.
func (t *tracer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), otlpGrace)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans are lost", "error", err)
	}
}

// pool traces the requests that are passed on to other servers.
func (t *tracer) pool(o *boxcarrpc.PoolOptions) {
	boxcarotel.InstrumentPool(o, t.options())
}

// call is HTTP for the metadata of gRPC.
func (t *tracer) call(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	headers := propagation.MapCarrier{}
	for _, key := range (propagation.TraceContext{}).Fields() {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			headers.Set(key, values[0])
		}
	}
	return handler(propagation.TraceContext{}.Extract(ctx, headers), request)
}
