package updater

import (
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"docstore/ingest"
	"docstore/ingest/merged"
	"docstore/internal/listen"
	"docstore/queue/publish"
	"docstore/queue/shardset"
)

// Limits of the listener of metrics.
const (
	metricsConns   = 16
	metricsTimeout = 10 * time.Second // of a request, and of an idle connection
)

// metrics are the Prometheus metrics of append. Their label "queue" is the name of the queue's
// directory.
type metrics struct {
	registry   *prometheus.Registry
	registerer prometheus.Registerer // adds the label
	flush      prometheus.Histogram
	fsync      prometheus.Histogram
	age        prometheus.Histogram
	listener   net.Listener // nil: the metrics are not served
	server     *http.Server
	running    sync.WaitGroup
}

// From 100 us to 26 s.
var flushBuckets = prometheus.ExponentialBuckets(100e-6, 2, 19)

// From 10 ms to 87 minutes, as docstore_freshness_seconds of servers.
var ageBuckets = prometheus.ExponentialBuckets(10e-3, 2, 20)

func newMetrics(queueDir string) *metrics {
	name := filepath.Base(queueDir)
	if path, err := filepath.Abs(queueDir); err == nil {
		name = filepath.Base(path)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		flush: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "docstore_append_flush_seconds", Help: "Duration of flushes of new documents and deletes.", Buckets: flushBuckets,
		}),
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "docstore_append_fsync_seconds", Help: "Duration of the fsyncs of segments.", Buckets: flushBuckets,
		}),
	}
	m.age = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "docstore_append_source_age_seconds", Help: "Time from a message or commit at the source until it was durable; of each flush the oldest.", Buckets: ageBuckets,
	})
	m.registerer = prometheus.WrapRegistererWith(prometheus.Labels{"queue": name}, m.registry)
	m.registerer.MustRegister(m.flush, m.fsync, m.age)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) observeSync(took time.Duration) { m.fsync.Observe(took.Seconds()) }

// listen takes the address; empty: the metrics are not served.
func (m *metrics) listen(address string, log *slog.Logger) (err error) {
	if address == "" {
		return nil
	}
	if m.listener, err = listen.TCP("--metrics", address); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	m.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: metricsTimeout,
		ReadTimeout:       metricsTimeout,
		WriteTimeout:      metricsTimeout,
		IdleTimeout:       metricsTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	log.Info("serving metrics", "url", "http://"+m.listener.Addr().String()+"/metrics")
	return nil
}

// serve serves the metrics, also those of c, until close. Requests since listen have waited.
func (m *metrics) serve(c prometheus.Collector) {
	m.registerer.MustRegister(c)
	if m.server != nil {
		m.running.Go(func() { _ = m.server.Serve(netutil.LimitListener(m.listener, metricsConns)) }) // until close
	}
}

func (m *metrics) close() {
	if m.server != nil {
		_ = m.server.Close()   // also ends requests
		_ = m.listener.Close() // if serve was not called
		m.running.Wait()
	}
}

// metric describes one number of appendCollector.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string) metric {
	return metric{prometheus.NewDesc("docstore_append_"+name, help, nil, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("docstore_append_"+name, help, labels, nil), prometheus.GaugeValue}
}

func (m metric) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

var (
	appendedDocuments = counter("documents_total", "Appended documents.")
	appendedDeletes   = counter("deletes_total", "Appended deletes.")
	badRecords        = counter("bad_records_total", "Invalid records that were skipped.")
	sourceBytes       = counter("source_bytes_total", "Bytes read from the source.")
	lagMessages       = gauge("lag_messages", "Messages that wait in a source.", "source")
	lagBytes          = gauge("lag_bytes", "Bytes that wait in a source.", "source")
	endSegment        = gauge("position_segment", "Segment of the queue's end.", "shard")
	endBlock          = gauge("position_block_offset", "Block offset of the queue's end in that segment.", "shard")
	manifestNumber    = gauge("manifest", "Number of the newest published and of the announced manifest.", "state")
	announceStopped   = gauge("announce_stopped", "1 while nothing is announced; see the log.")
	publishError      = gauge("publish_error", "1 while the last attempt to publish or announce failed; see the log.")
)

// appendCollector collects the metrics of an Appender.
type appendCollector struct {
	appender *ingest.Appender
	source   ingest.Source
	writer   *shardset.Writer
	live     *publish.Live // nil: nothing is published
	announce bool
}

// Describe implements prometheus.Collector.
func (c *appendCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{
		appendedDocuments, appendedDeletes, badRecords, sourceBytes, lagMessages, lagBytes, endSegment, endBlock,
		manifestNumber, announceStopped, publishError,
	} {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *appendCollector) Collect(to chan<- prometheus.Metric) {
	at := c.appender.Progress()
	appendedDocuments.send(to, float64(at.Documents))
	appendedDeletes.send(to, float64(at.Deletes))
	badRecords.send(to, float64(at.Invalid))
	sourceBytes.send(to, float64(at.Bytes))
	if several, ok := c.source.(*merged.Source); ok {
		for _, lag := range several.Lags() {
			sendLag(to, lag.N, lag.Unit, lag.Name)
		}
	} else {
		n, unit := c.source.Lag()
		sendLag(to, n, unit, "")
	}
	ends := c.writer.Ends()
	for i, end := range ends {
		shard := ""
		if len(ends) > 1 {
			shard = strconv.Itoa(i)
		}
		endSegment.send(to, float64(end.Segment), shard)
		endBlock.send(to, float64(end.Block), shard)
	}
	if c.live != nil {
		c.collectLive(to)
	}
}

// sendLag sends the lag of a source; unit is that of ingest.Source.Lag.
func sendLag(to chan<- prometheus.Metric, n int64, unit, name string) {
	switch unit {
	case "messages":
		lagMessages.send(to, float64(n), name)
	case "bytes":
		lagBytes.send(to, float64(n), name)
	}
}

func (c *appendCollector) collectLive(to chan<- prometheus.Metric) {
	state := c.live.State()
	publishError.send(to, boolValue(state.Failing))
	if state.Published > 0 {
		manifestNumber.send(to, float64(state.Published), "published")
	}
	if !c.announce {
		return
	}
	announceStopped.send(to, boolValue(state.Stopped))
	if state.Announced > 0 {
		manifestNumber.send(to, float64(state.Announced), "announced")
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
