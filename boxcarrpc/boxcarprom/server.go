package boxcarprom

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/boxcarrpc"
)

// A Server is a prometheus.Collector with the metrics of a server.
type Server struct {
	calls   *calls
	numbers numbers[boxcarrpc.ServerStats]
	refused *prometheus.Desc
	leases  *prometheus.Desc
	server  atomic.Pointer[boxcarrpc.Server]
}

// NewServer returns the metrics of a server. o may be nil.
func NewServer(o *Options) *Server {
	options := o.withDefaults("boxcar_server")
	s := &Server{
		calls: newCalls(options,
			"Requests and streams that reached a handler, by method and code.",
			"How long handlers took for requests, by method.",
			"The slots that requests came on."),
		refused: prometheus.NewDesc(options.Prefix+"_refused_total", "Requests and streams refused before any handler, by reason and priority: interactive or batch.", []string{"reason", "priority"}, options.Labels),
		leases:  prometheus.NewDesc(options.Prefix+"_leases_total", "Questions for a slot, by answer: granted or denied.", []string{"answer"}, options.Labels),
	}
	s.numbers.options = options
	type stats = boxcarrpc.ServerStats
	gauge, counter := s.numbers.gauge, s.numbers.counter
	gauge("connections", "Connections open now.", func(s stats) float64 { return float64(s.Connections) })
	gauge("slots", "Slots leased now.", func(s stats) float64 { return float64(s.Slots) })
	gauge("lowest_free_slot", "Lowest free slot, which the next lease gets.", func(s stats) float64 { return float64(s.LowestFree) })
	gauge("requests_in_flight", "Requests being received or in a handler now, and streams.", func(s stats) float64 { return float64(s.InFlight) })
	gauge("streams", "Streams open now.", func(s stats) float64 { return float64(s.Streams) })
	gauge("request_buffer_bytes", "Bytes of requests that are being received.", func(s stats) float64 { return float64(s.BufferBytes) })
	gauge("draining", "1 while the server drains and leases no slots, otherwise 0.", func(s stats) float64 { return boolean(s.Draining) })
	counter("requests_total", "Requests and streams that reached a handler.", func(s stats) float64 { return float64(s.Requests) })
	counter("other_zone_total", "Of these, from clients of other zones.", func(s stats) float64 { return float64(s.OtherZone) })
	counter("errors_total", "Of these, answered with an error.", func(s stats) float64 { return float64(s.Errors) })
	counter("panics_total", "Of these, ended by a panic.", func(s stats) float64 { return float64(s.Panics) })
	counter("connections_accepted_total", "Connections accepted.", func(s stats) float64 { return float64(s.Accepted) })
	counter("connection_faults_total", "Connections closed for a fault of the peer, including failed authentication.", func(s stats) float64 { return float64(s.Faults) })
	return s
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Instrument adds interceptors to the options of the server for Watch, as the outermost,
// and returns the options.
func (s *Server) Instrument(o *boxcarrpc.ServerOptions) *boxcarrpc.ServerOptions {
	o.Interceptors = append([]func(boxcarrpc.Handler) boxcarrpc.Handler{s.intercept}, o.Interceptors...)
	o.StreamInterceptors = append([]func(boxcarrpc.StreamHandler) boxcarrpc.StreamHandler{s.interceptStream}, o.StreamInterceptors...)
	return o
}

// Watch adds the server's counters, which are absent before.
func (s *Server) Watch(server *boxcarrpc.Server) { s.server.Store(server) }

func (s *Server) intercept(next boxcarrpc.Handler) boxcarrpc.Handler {
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		began, returned := s.calls.now(), false
		defer func() {
			if !returned { // the handler panicked
				s.calls.note(method, boxcarrpc.CodeInternal, boxcarrpc.SlotOf(ctx), began)
			}
		}()
		out, err := next(ctx, method, request, dst)
		returned = true
		s.calls.note(method, boxcarrpc.CodeOf(err), boxcarrpc.SlotOf(ctx), began)
		return out, err
	}
}

func (s *Server) interceptStream(next boxcarrpc.StreamHandler) boxcarrpc.StreamHandler {
	return func(ctx context.Context, method string, stream *boxcarrpc.ServerStream) error {
		code := boxcarrpc.CodeInternal // if the handler panics
		defer func() { s.calls.note(method, code, -1, time.Time{}) }()
		err := next(ctx, method, stream)
		code = boxcarrpc.CodeOf(err)
		return err
	}
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	s.calls.describe(to)
	s.numbers.describe(to)
	to <- s.refused
	to <- s.leases
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	s.calls.collect(to)
	server := s.server.Load()
	if server == nil {
		return
	}
	stats := server.Stats()
	s.numbers.collect(to, stats)
	for reason, n := range stats.RefusedBy {
		batch := stats.RefusedBatchBy[reason]
		to <- prometheus.MustNewConstMetric(s.refused, prometheus.CounterValue, float64(n-batch), reason, "interactive")
		to <- prometheus.MustNewConstMetric(s.refused, prometheus.CounterValue, float64(batch), reason, "batch")
	}
	to <- prometheus.MustNewConstMetric(s.leases, prometheus.CounterValue, float64(stats.Leases), "granted")
	to <- prometheus.MustNewConstMetric(s.leases, prometheus.CounterValue, float64(stats.Denied), "denied")
}
