package boxcarprom

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/boxcarrpc"
)

const (
	maxMethods  = 256
	otherMethod = "other"
	// gRPC's codes; other codes count as unknown.
	codes = int(boxcarrpc.CodeUnauthenticated) + 1
)

var (
	// From 10 us to 10 s.
	latencyBuckets = prometheus.ExponentialBuckets(10e-6, 2, 21)
	// Powers of two, for the range of used slots.
	slotBuckets = append([]float64{0}, prometheus.ExponentialBuckets(1, 2, 16)...)
)

// Options are the options of the metrics of a server or a pool. The zero value of each
// field, and nil, mean the default.
type Options struct {
	// Prefix is the prefix of the names, without the underscore after it. The default
	// is boxcar_server or boxcar_client.
	Prefix string
	// Labels are added to each metric, for example to distinguish a program's pools.
	// The default is none.
	Labels prometheus.Labels
	// WithoutSeconds disables the histogram of times, for a program that has another.
	WithoutSeconds bool
}

func (o *Options) withDefaults(prefix string) Options {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Prefix == "" {
		r.Prefix = prefix
	}
	return r
}

// calls has the metrics of individual calls.
type calls struct {
	handled *prometheus.Desc
	seconds *prometheus.HistogramVec // nil if disabled
	slots   prometheus.Histogram

	// The map is immutable: a change replaces it, with mu held.
	methods atomic.Pointer[map[string]*method]
	mu      sync.Mutex
}

// A method has the metrics of one method.
type method struct {
	label   string
	codes   [codes]atomic.Uint64
	seconds prometheus.Observer // nil if disabled
}

func newCalls(o Options, handled, seconds, slots string) *calls {
	c := &calls{
		handled: prometheus.NewDesc(o.Prefix+"_handled_total", handled, []string{"method", "code"}, o.Labels),
		slots: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: o.Prefix + "_slot", Help: slots, ConstLabels: o.Labels, Buckets: slotBuckets,
		}),
	}
	if !o.WithoutSeconds {
		c.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: o.Prefix + "_seconds", Help: seconds, ConstLabels: o.Labels, Buckets: latencyBuckets,
		}, []string{"method"})
	}
	c.methods.Store(&map[string]*method{otherMethod: c.newMethod(otherMethod)})
	return c
}

func (c *calls) newMethod(name string) *method {
	m := &method{label: name}
	if c.seconds != nil {
		m.seconds = c.seconds.WithLabelValues(m.label)
	}
	return m
}

// now returns the start time of a call, zero if times are disabled.
func (c *calls) now() time.Time {
	if c.seconds == nil {
		return time.Time{}
	}
	return time.Now()
}

// note records a call that started at began, and its slot unless it is negative.
func (c *calls) note(name string, code boxcarrpc.Code, slot int, began time.Time) {
	m := c.method(name, code)
	m.count(code)
	if m.seconds != nil && !began.IsZero() {
		m.seconds.Observe(time.Since(began).Seconds())
	}
	if slot >= 0 {
		c.slots.Observe(float64(slot))
	}
}

func (m *method) count(code boxcarrpc.Code) {
	if int(code) >= codes {
		code = boxcarrpc.CodeUnknown
	}
	m.codes[code].Add(1)
}

// method returns the metrics of a method. They are those of "other" for an unknown method
// if the code indicates that it may not exist or there are maxMethods already.
func (c *calls) method(name string, code boxcarrpc.Code) *method {
	known := *c.methods.Load()
	if m := known[name]; m != nil {
		return m
	}
	// Names that differ only in invalid UTF-8 share a label and their metrics.
	name = strings.ToValidUTF8(name, "?")
	if code == boxcarrpc.CodeUnimplemented || code == boxcarrpc.CodePermissionDenied {
		return known[otherMethod]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known = *c.methods.Load()
	m := known[name]
	switch {
	case m != nil:
		return m
	case len(known) >= maxMethods:
		return known[otherMethod]
	}
	next := make(map[string]*method, len(known)+1)
	for name, m := range known {
		next[name] = m
	}
	m = c.newMethod(name)
	next[name] = m
	c.methods.Store(&next)
	return m
}

func (c *calls) describe(to chan<- *prometheus.Desc) {
	to <- c.handled
	c.slots.Describe(to)
	if c.seconds != nil {
		c.seconds.Describe(to)
	}
}

func (c *calls) collect(to chan<- prometheus.Metric) {
	for _, m := range *c.methods.Load() {
		for code := range m.codes {
			if n := m.codes[code].Load(); n > 0 {
				to <- prometheus.MustNewConstMetric(c.handled, prometheus.CounterValue, float64(n), m.label, boxcarrpc.Code(code).String())
			}
		}
	}
	c.slots.Collect(to)
	if c.seconds != nil {
		c.seconds.Collect(to)
	}
}

// A number is a metric that is read at a scrape.
type number[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(S) float64
}

// numbers has the metrics of a struct of statistics.
type numbers[S any] struct {
	options Options
	all     []number[S]
}

func (n *numbers[S]) gauge(name, help string, of func(S) float64) {
	n.add(prometheus.GaugeValue, name, help, of)
}

func (n *numbers[S]) counter(name, help string, of func(S) float64) {
	n.add(prometheus.CounterValue, name, help, of)
}

func (n *numbers[S]) add(kind prometheus.ValueType, name, help string, of func(S) float64) {
	desc := prometheus.NewDesc(n.options.Prefix+"_"+name, help, nil, n.options.Labels)
	n.all = append(n.all, number[S]{desc, kind, of})
}

func (n *numbers[S]) describe(to chan<- *prometheus.Desc) {
	for _, one := range n.all {
		to <- one.desc
	}
}

func (n *numbers[S]) collect(to chan<- prometheus.Metric, stats S) {
	for _, one := range n.all {
		to <- prometheus.MustNewConstMetric(one.desc, one.kind, one.of(stats))
	}
}
