package server

import (
	"context"
	"net/http"
	"path"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarprom"
	"docstore/docservice"
	"docstore/docservice/server/internal/metric"
	"docstore/docservice/server/livepage"
	"docstore/internal/buildinfo"
)

// metrics are the Prometheus metrics of a server. Counters of other packages are read at
// each scrape; only latencies are measured here.
type metrics struct {
	server   *Server
	registry *prometheus.Registry
	seconds  *prometheus.HistogramVec
	timings  []*timing
	boxcar   *boxcarprom.Server
}

// timing is a histogram of metrics.seconds. Most methods of most servers are not called within a
// second, the interval of the live page, so their counts are kept: reading a histogram makes a
// hundred objects.
type timing struct {
	histogram prometheus.Histogram
	observed  atomic.Bool           // since sample was taken
	sample    livepage.MethodSample // used by latencies only
}

// Observe implements prometheus.Observer.
func (t *timing) Observe(seconds float64) {
	t.histogram.Observe(seconds)
	t.note()
}

// ObserveWithExemplar implements prometheus.ExemplarObserver.
func (t *timing) ObserveWithExemplar(seconds float64, exemplar prometheus.Labels) {
	t.histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, exemplar)
	t.note()
}

// note records that the histogram has changed.
func (t *timing) note() {
	if !t.observed.Load() {
		t.observed.Store(true)
	}
}

// From 10 us, for a document in memory, to 10 s.
var latencyBuckets = prometheus.ExponentialBuckets(10e-6, 2, 21)

func newMetrics(d *Server) *metrics {
	m := &metrics{
		server:   d,
		registry: prometheus.NewRegistry(),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "docstore_fetch_seconds",
			Help:    "Duration of requests on this server, by listener and method.",
			Buckets: latencyBuckets,
		}, []string{"listener", "method"}),
		boxcar: boxcarprom.NewServer(&boxcarprom.Options{WithoutSeconds: true}),
	}
	m.registry.MustRegister(m.seconds, collectionCollector{d, new(metric.Sampler)}, m.boxcar, cacheCollector{d}, contactCollector{d}, newBuildInfo(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(d.parts.Collectors...)
	return m
}

// timing adds the histogram of a method.
func (m *metrics) timing(listener, method string) prometheus.Observer {
	t := &timing{histogram: m.seconds.WithLabelValues(listener, method).(prometheus.Histogram)}
	t.sample = livepage.MethodSample{Listener: listener, Method: method, Latencies: livepage.Histogram{Bounds: latencyBuckets, Counts: make([]uint64, len(latencyBuckets)+1)}}
	m.timings = append(m.timings, t)
	return t
}

// latencies returns the histograms for the live page. One goroutine at a time calls it.
func (m *metrics) latencies() []livepage.MethodSample {
	samples := make([]livepage.MethodSample, len(m.timings))
	for i, t := range m.timings {
		if t.observed.Swap(false) {
			t.sample.Latencies.Counts = t.counts()
		}
		samples[i] = t.sample
	}
	return samples
}

// counts returns the number of observations in each bucket, and above all.
func (t *timing) counts() []uint64 {
	var written dto.Metric
	if err := t.histogram.Write(&written); err != nil {
		panic(err) // writing to memory does not fail
	}
	counts, before := make([]uint64, len(latencyBuckets)+1), uint64(0)
	for i, bucket := range written.GetHistogram().GetBucket() {
		counts[i], before = bucket.GetCumulativeCount()-before, bucket.GetCumulativeCount()
	}
	counts[len(latencyBuckets)] = written.GetHistogram().GetSampleCount() - before
	return counts
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// methodObservers are the histograms of a listener's methods.
type methodObservers struct{ get, batchGet, dictionary, scan, stats prometheus.Observer }

// observers adds the histograms of a listener.
func (m *metrics) observers(listener string) methodObservers {
	of := func(method string) prometheus.Observer { return m.timing(listener, path.Base(method)) }
	return methodObservers{of(docservice.MethodGet), of(docservice.MethodBatchGet), of(docservice.MethodDictionary), of(docservice.MethodScan), of(docservice.MethodStats)}
}

// of returns the histogram of a method, nil if there is none.
func (o *methodObservers) of(method string) prometheus.Observer {
	switch method {
	case docservice.MethodGet:
		return o.get
	case docservice.MethodBatchGet:
		return o.batchGet
	case docservice.MethodDictionary:
		return o.dictionary
	case docservice.MethodScan:
		return o.scan
	case docservice.MethodStats:
		return o.stats
	}
	return nil
}

// timed measures the duration of a listener's handler.
func (m *metrics) timed(listener string, next boxcarrpc.Handler) boxcarrpc.Handler {
	observers := m.observers(listener)
	made := time.Now()
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		started := time.Since(made) // reads one clock, time.Now reads two
		response, err := next(ctx, method, request, dst)
		if observer := observers.of(method); observer != nil {
			m.observe(ctx, observer, time.Since(made)-started)
		}
		return response, err
	}
}

// observe adds a duration to a histogram, with its trace as exemplar.
func (m *metrics) observe(ctx context.Context, observer prometheus.Observer, took time.Duration) {
	if id := m.server.options.Tracer.TraceID(ctx); id != "" {
		if histogram, ok := observer.(prometheus.ExemplarObserver); ok {
			histogram.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
			return
		}
	}
	observer.Observe(took.Seconds())
}

// newBuildInfo returns a metric that is always 1 and has the build as labels.
func newBuildInfo() prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "docstore_build_info", Help: "Always 1; the labels identify the build.",
	}, []string{"version", "commit", "go"})
	build := buildinfo.This()
	info.WithLabelValues(build.Version, build.Commit, runtime.Version()).Set(1)
	return info
}
