package boxcarprom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pair is a server and a pool with one slot and their metrics.
type pair struct {
	server *boxcarrpc.Server
	pool   *boxcarrpc.Pool
	scrape func(t testing.TB) string
}

func newPair(t testing.TB, serverOptions *boxcarrpc.ServerOptions) *pair {
	registry := prometheus.NewPedanticRegistry()
	s, p := NewServer(nil), NewPool(&Options{Labels: prometheus.Labels{"pool": "jobs"}})
	registry.MustRegister(s, p)
	one := &pair{scrape: func(t testing.TB) string { return scrape(t, registry) }}
	require.NotContains(t, one.scrape(t), "boxcar_server_slots", "before Watch")

	one.server = boxcarrpc.NewServer(handle, s.Instrument(serverOptions))
	s.Watch(one.server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- one.server.Serve(l) }()
	one.pool, err = boxcarrpc.NewPool(discovery.Static(l.Addr().String()), p.Instrument(&boxcarrpc.PoolOptions{Size: 1, MaxRetries: -1}))
	require.NoError(t, err)
	p.Watch(one.pool)
	t.Cleanup(func() {
		require.NoError(t, one.pool.Close())
		require.NoError(t, one.server.Close())
		require.ErrorIs(t, <-ended, boxcarrpc.ErrServerClosed)
	})
	require.NoError(t, one.pool.WaitReady(t.Context()))
	return one
}

// scrape returns the exposition format.
func scrape(t testing.TB, registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	return w.Body.String()
}

// gatherer combines two collectors.
type gatherer [2]prometheus.Collector

func (g gatherer) Describe(to chan<- *prometheus.Desc) { g[0].Describe(to); g[1].Describe(to) }
func (g gatherer) Collect(to chan<- prometheus.Metric) { g[0].Collect(to); g[1].Collect(to) }

func handle(_ context.Context, method string, request, dst []byte) ([]byte, error) {
	switch {
	case method == "panic":
		panic("ouch")
	case method == "fail":
		return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound}
	case method == "odd":
		return dst, errors.New("odd")
	case strings.HasPrefix(method, "no"):
		return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented}
	}
	return append(dst, request...), nil
}

func handleStream(_ context.Context, method string, _ *boxcarrpc.ServerStream) error {
	if method == "panic" {
		panic("ouch")
	}
	return &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound}
}

// With separate metrics for the same label every later scrape would fail.
func TestInvalidUTF8MethodsShareALabel(t *testing.T) {
	p := newPair(t, &boxcarrpc.ServerOptions{})
	for _, method := range []string{"\xff", "\xfe", "a\xff", "a?", "?"} {
		_, err := p.pool.Call(t.Context(), method, nil, nil)
		require.NoError(t, err)
	}
	text := p.scrape(t)
	require.Contains(t, text, `boxcar_server_handled_total{code="ok",method="?"} 3`)
	require.Contains(t, text, `boxcar_server_handled_total{code="ok",method="a?"} 2`)
}

func TestExportedMetrics(t *testing.T) {
	p := newPair(t, &boxcarrpc.ServerOptions{
		StreamHandler: handleStream,
		Admission:     budget.Admission{ClientRate: 1e-3, ClientBurst: 8},
	})
	// Each call takes a token; the ninth is refused. A panic loses the slot.
	for _, method := range []string{"get", "get", "fail", "odd", "no such\xff", "panic"} {
		_, _ = p.pool.Call(t.Context(), method, nil, nil)
	}
	for _, method := range []string{"watch", "panic"} {
		stream, err := p.pool.Stream(t.Context(), method, nil)
		require.NoError(t, err)
		_, err = stream.Receive(nil)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	}
	require.NoError(t, p.pool.WaitReady(t.Context()))
	_, err := p.pool.Call(t.Context(), "get", nil, nil)
	require.Equal(t, boxcarrpc.CodeResourceExhausted, boxcarrpc.CodeOf(err))

	text := p.scrape(t)
	for _, want := range []string{
		`boxcar_server_handled_total{code="ok",method="get"} 2`,
		`boxcar_server_handled_total{code="not found",method="fail"} 1`,
		`boxcar_server_handled_total{code="unknown",method="odd"} 1`,
		`boxcar_server_handled_total{code="unimplemented",method="other"} 1`,
		`boxcar_server_handled_total{code="internal",method="panic"} 2`,
		`boxcar_server_handled_total{code="not found",method="watch"} 1`,
		`boxcar_server_seconds_count{method="get"} 2`,
		`boxcar_server_seconds_count{method="panic"} 1`,
		`boxcar_server_seconds_count{method="watch"} 0`,
		`boxcar_server_slot_bucket{le="0"} 6`,
		`boxcar_server_slot_count 6`,
		`boxcar_server_refused_total{priority="interactive",reason="client_rate"} 1`,
		`boxcar_server_refused_total{priority="batch",reason="client_rate"} 0`,
		`boxcar_server_refused_total{priority="interactive",reason="draining"} 0`,
		`boxcar_server_leases_total{answer="granted"} 2`,
		`boxcar_server_requests_total 8`,
		`boxcar_server_panics_total 2`,
		`boxcar_server_slots 1`,
		`boxcar_server_connections 1`,
		`boxcar_server_draining 0`,
		`boxcar_client_handled_total{code="ok",method="get",pool="jobs"} 2`,
		`boxcar_client_handled_total{code="resource exhausted",method="get",pool="jobs"} 1`,
		`boxcar_client_handled_total{code="internal",method="panic",pool="jobs"} 2`,
		`boxcar_client_handled_total{code="not found",method="watch",pool="jobs"} 1`,
		`boxcar_client_seconds_count{method="get",pool="jobs"} 3`,
		`boxcar_client_slot_bucket{pool="jobs",le="0"} 7`,
		`boxcar_client_calls_total{pool="jobs"} 7`,
		`boxcar_client_failed_total{pool="jobs"} 5`,
		`boxcar_client_slots_wanted{pool="jobs"} 1`,
		`boxcar_client_slots{pool="jobs"} 1`,
		`boxcar_client_leases_total{pool="jobs"} 2`,
		`boxcar_client_slots_lost_total{pool="jobs"} 1`,
		`boxcar_client_transports{pool="jobs"} 1`,
	} {
		require.Contains(t, text, want+"\n")
	}
}

// Clients choose methods; the number of labels is bounded.
func TestMethodsAreBounded(t *testing.T) {
	c := newCalls(Options{Prefix: "x"}, "", "", "")
	for i := range 2 * maxMethods {
		c.note(fmt.Sprint("m", i), boxcarrpc.CodeOK, -1, time.Now())
		c.note(fmt.Sprint("n", i), boxcarrpc.CodePermissionDenied, -1, time.Now())
	}
	known := *c.methods.Load()
	require.Len(t, known, maxMethods)
	require.Equal(t, uint64(2*maxMethods), known[otherMethod].codes[boxcarrpc.CodePermissionDenied].Load())
	require.Equal(t, uint64(maxMethods+1), known[otherMethod].codes[boxcarrpc.CodeOK].Load())
	c.note("m0", boxcarrpc.CodePermissionDenied, -1, time.Now())
	require.Equal(t, uint64(1), known["m0"].codes[boxcarrpc.CodePermissionDenied].Load(), "the method was known before")
	c.note("m0", 1000, -1, time.Now())
	require.Equal(t, uint64(1), known["m0"].codes[boxcarrpc.CodeUnknown].Load())
}

func TestWithoutSeconds(t *testing.T) {
	s := NewServer(&Options{Prefix: "mine", WithoutSeconds: true})
	s.calls.note("get", boxcarrpc.CodeOK, 3, s.calls.now())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	text := scrape(t, registry)
	require.Contains(t, text, `mine_handled_total{code="ok",method="get"} 1`)
	require.Contains(t, text, `mine_slot_bucket{le="4"} 1`)
	require.NotContains(t, text, "seconds")
}

// docs/metrics.md lists exactly the exported metrics.
func TestMetricsPageIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "<!-- boxcarprom -->")
	require.True(t, ok)
	section, _, ok = strings.Cut(section, "<!-- end -->")
	require.True(t, ok)
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^- `(boxcar_[a-z_]+)").FindAllStringSubmatch(section, -1) {
		listed[name[1]] = true
	}
	there := map[string]bool{}
	descs := make(chan *prometheus.Desc, 1000)
	gatherer{NewServer(nil), NewPool(nil)}.Describe(descs)
	close(descs)
	for desc := range descs {
		there[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())[1]] = true
	}
	require.Equal(t, there, listed)
}
