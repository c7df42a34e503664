package main

import (
	"context"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarotel"
	"docstore/cmd/internal/cli"
)

// otlpGrace is the maximum time to send the last spans to the collector.
const otlpGrace = 5 * time.Second

// tracing holds the flag of the trace collector.
type tracing struct{ url string }

func (t *tracing) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.url, "otlp", "", "OpenTelemetry collector for OTLP over HTTP, for example http://collector:4318; "+
		"it receives spans of Boxcar requests that their clients trace, with the stages index and segments; "+
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

// open returns the source of spans, nil if tracing is disabled. An unreachable collector is
// not an error: its spans are lost, which is logged.
func (t *tracing) open(ctx context.Context, env *cli.Env) (*trace.TracerProvider, error) {
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
		attribute.String("service.version", cli.Version())), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	options := []trace.TracerProviderOption{trace.WithBatcher(exporter), trace.WithResource(about)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, trace.WithSampler(trace.ParentBased(trace.NeverSample())))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { env.Log.Warn("tracing", "error", err) }))
	return trace.NewTracerProvider(options...), nil
}

// traceBoxcar traces the requests of the Boxcar listener and their stages.
func (d *daemon) traceBoxcar(o *boxcarrpc.ServerOptions) {
	if d.tracing == nil {
		return
	}
	boxcarotel.InstrumentServer(o, &boxcarotel.Options{TracerProvider: d.tracing})
	tracer := d.tracing.Tracer("docstore/cmd/docserviced")
	d.service.Trace(func(ctx context.Context) func(string) func() {
		if !oteltrace.SpanFromContext(ctx).IsRecording() {
			return nil
		}
		return func(stage string) func() {
			_, span := tracer.Start(ctx, stage)
			return func() { span.End() }
		}
	})
}

// endTracing sends the last spans.
func (d *daemon) endTracing() {
	if d.tracing == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), otlpGrace)
	defer cancel()
	if err := d.tracing.Shutdown(ctx); err != nil {
		d.env.Log.Warn("the last spans are lost", "error", err)
	}
}
