package docserviced

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectortracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarotel"
	"docstore/boxcarrpc/discovery"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/placement"
	"docstore/internal/servertest"
)

// A collector receives the requests that clients trace, at the latest when the daemon
// stops.
func TestSpansReachACollector(t *testing.T) {
	bodies := make(chan []byte, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			t.Errorf("%s", r.URL.Path)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- body
	}))
	defer collector.Close()
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.tracing.url = collector.URL
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	traced := false
	traceparent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), &boxcarrpc.PoolOptions{
		Interceptors: []func(boxcarrpc.Caller) boxcarrpc.Caller{func(next boxcarrpc.Caller) boxcarrpc.Caller {
			return func(ctx context.Context, method string, request, dst []byte, info *boxcarrpc.CallInfo) ([]byte, error) {
				if traced {
					info.Metadata = info.Metadata.Append("traceparent", traceparent)
				}
				return next(ctx, method, request, dst, info)
			}
		}},
	})
	require.NoError(t, err)
	client := docservice.NewClient(pool, "jobs")
	_, err = client.Get(servertest.Shortly(t), nil, "a")
	require.NoError(t, err)
	traced = true
	_, err = client.Get(servertest.Shortly(t), nil, "a")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	d.tracer.Close()
	close(bodies)
	var all []byte
	for body := range bodies {
		all = append(all, body...)
	}
	name := []byte(docservice.MethodGet[1:])
	require.Equal(t, 1, bytes.Count(all, name), "only what the client traces")
	require.Contains(t, string(all), "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c")
	require.Contains(t, string(all), "docserviced")
}

// collector is a collector of spans.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	received []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectortracepb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.received = append(c.received, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.received)
}

// A request over HTTP or gRPC has the trace of its client on the server that it reaches and on
// that of the document's column.
func TestTraceOverHTTPAndGRPC(t *testing.T) {
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	f := newShardedFixture(t, 20)
	collector := newCollector(t)
	f.collector = collector.URL
	a, b := f.start("a"), f.start("b")
	require.NoError(t, f.store.UpdateControl(t.Context(), func(c *placement.Control) error {
		c.Wanted = []string{"a", "b", "b", "a"}
		return nil
	}))
	f.eventually("the shards are served", func() bool { return len(a.Collections()) == 2 && len(b.Collections()) == 2 })
	id := idOfShard(1) // of column b
	f.eventually("requests are passed on", func() bool { return servertest.Get(a.HTTPHandler(), "/documents/jobs/"+id).Code == http.StatusOK })
	request := httptest.NewRequest(http.MethodGet, "http://localhost/documents/jobs/"+id, nil)
	request.Header.Set("Traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	w := httptest.NewRecorder()
	a.HTTPHandler().ServeHTTP(w, request)
	require.Equal(t, http.StatusOK, w.Code)
	ctx := metadata.AppendToOutgoingContext(servertest.Shortly(t), "traceparent", "00-"+traceID+"-00f067aa0ba902b7-01")
	conn, err := grpc.NewClient(a.grpc.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	_, err = docservicegrpc.NewDocumentsClient(conn).Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte(id)})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	a.tracer.Close()
	b.tracer.Close()

	spans := map[string]*tracepb.Span{}
	for _, span := range collector.spans() {
		require.Equal(t, traceID, hex.EncodeToString(span.GetTraceId()), "%s: only what the client traces", span.GetName())
		spans[string(span.GetSpanId())] = span
	}
	var segments int
	for _, span := range spans {
		if span.GetName() != collection.StageSegment {
			continue
		}
		segments++
		var kinds []string
		for ; span != nil; span = spans[string(span.GetParentSpanId())] {
			kinds = append(kinds, strings.TrimPrefix(span.GetKind().String(), "SPAN_KIND_"))
		}
		require.Equal(t, []string{"INTERNAL", "SERVER", "CLIENT", "SERVER"}, kinds)
	}
	require.Equal(t, 2, segments)
}

// One trace connects a client with its slot, the index and the segment, and the latency
// histogram has it as exemplar.
func TestOneTraceFromClientToSegment(t *testing.T) {
	collector := newCollector(t)
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.tracing.url = collector.URL
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)

	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(collector.URL+"/v1/traces"))
	require.NoError(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), boxcarotel.InstrumentPool(&boxcarrpc.PoolOptions{}, &boxcarotel.Options{TracerProvider: provider}))
	require.NoError(t, err)
	client := docservice.NewClient(pool, "jobs")
	_, err = client.Get(servertest.Shortly(t), nil, "a")
	require.NoError(t, err)
	require.NoError(t, client.GetMany(servertest.Shortly(t), []string{"a"}, func(int, []byte, error) error { return nil }))
	require.NoError(t, pool.Close())
	require.NoError(t, provider.Shutdown(servertest.Shortly(t)))
	d.tracer.Close()

	spans := map[string]*tracepb.Span{} // by name
	for _, span := range collector.spans() {
		spans[span.GetKind().String()+" "+span.GetName()] = span
	}
	for _, method := range []string{docservice.MethodBatchGet, docservice.MethodGet} {
		asked, answered := spans["SPAN_KIND_CLIENT "+method[1:]], spans["SPAN_KIND_SERVER "+method[1:]]
		require.NotNil(t, asked, method)
		require.NotNil(t, answered, method)
		require.Equal(t, asked.GetTraceId(), answered.GetTraceId())
		require.Equal(t, asked.GetSpanId(), answered.GetParentSpanId())
		require.Contains(t, fmt.Sprint(answered.GetAttributes()), "boxcar.slot")
		request := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
		request.Header.Set("Accept", "application/openmetrics-text")
		w := httptest.NewRecorder()
		d.HTTPHandler().ServeHTTP(w, request)
		require.Contains(t, w.Body.String(), `{trace_id="`+hex.EncodeToString(asked.GetTraceId())+`"}`)
	}
	last := spans["SPAN_KIND_SERVER "+docservice.MethodBatchGet[1:]] // of the last call
	for _, stage := range []string{collection.StageIndex, collection.StageSegment} {
		span := spans["SPAN_KIND_INTERNAL "+stage]
		require.NotNil(t, span, stage)
		require.Equal(t, last.GetTraceId(), span.GetTraceId())
		require.Equal(t, last.GetSpanId(), span.GetParentSpanId())
	}
}

func TestInvalidTracingURL(t *testing.T) {
	dir := t.TempDir()
	for _, url := range []string{"collector:4318", "ftp://collector", "http://", "http://a b"} {
		r := run(t.Context(), "serve", "--data", dir, "--collection", "jobs="+dir, "--otlp", url)
		require.Equal(t, cli.ExitUsage, r.status, url)
		require.Contains(t, r.stderr, "must be a URL like http://collector:4318")
	}
}

// An unreachable collector only loses spans, and is logged.
func TestUnreachableCollector(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	collector := httptest.NewServer(http.NotFoundHandler())
	collector.Close()
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	o := testOptions(t, queueDir)
	o.tracing.url = collector.URL
	d, log := startTestDaemon(t, o)
	waitReady(t, d)
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), nil)
	require.NoError(t, err)
	_, err = docservice.NewClient(pool, "jobs").Get(servertest.Shortly(t), nil, "a")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	d.tracer.Close()
	require.Contains(t, log.String(), "traces export")
}
