package main

import (
	"context"
	"net/http"
	"path"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"docstore/boxcarrpc"
	"docstore/docservice"
)

// metrics are what a daemon tells Prometheus. What the parts count already is
// asked of them when it is scraped; only latencies are measured here.
type metrics struct {
	daemon   *daemon
	registry *prometheus.Registry
	seconds  *prometheus.HistogramVec
	byMethod map[string]prometheus.Observer
	overHTTP prometheus.Observer
}

// From 10 us, a document in memory, to 10 s.
var latencyBuckets = prometheus.ExponentialBuckets(10e-6, 2, 21)

func newMetrics(d *daemon) *metrics {
	m := &metrics{
		daemon:   d,
		registry: prometheus.NewRegistry(),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "docstore_fetch_seconds",
			Help:    "How long requests took on this server, by door and method.",
			Buckets: latencyBuckets,
		}, []string{"door", "method"}),
		byMethod: make(map[string]prometheus.Observer),
	}
	for _, method := range []string{docservice.MethodGet, docservice.MethodBatchGet, docservice.MethodDictionary, docservice.MethodScan, docservice.MethodStats} {
		m.byMethod[method] = m.seconds.WithLabelValues("boxcar", path.Base(method))
	}
	m.overHTTP = m.seconds.WithLabelValues("http", "Get")
	m.registry.MustRegister(m.seconds, collectionCollector{d}, boxcarCollector{d}, cacheCollector{d}, newBuildInfo(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// timed measures how long a Boxcar handler takes.
func (m *metrics) timed(next boxcarrpc.Handler) boxcarrpc.Handler {
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		started := time.Now()
		response, err := next(ctx, method, request, dst)
		if observer := m.byMethod[method]; observer != nil {
			observer.Observe(time.Since(started).Seconds())
		}
		return response, err
	}
}

// timedHTTP measures how long an HTTP handler takes.
func (m *metrics) timedHTTP(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		next(w, r)
		m.overHTTP.Observe(time.Since(started).Seconds())
	}
}

// newBuildInfo is a metric that is always 1 and says what is running.
func newBuildInfo() prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "docstore_build_info", Help: "Always 1; the labels say which build this is.",
	}, []string{"version", "commit", "go"})
	version, commit, goVersion := "unknown", "unknown", "unknown"
	if build, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = build.Main.Version, build.GoVersion
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				commit = setting.Value
			}
		}
	}
	info.WithLabelValues(version, commit, goVersion).Set(1)
	return info
}
