// Package metric describes the metrics that a collector reads from counters of other packages
// at each scrape.
package metric

import "github.com/prometheus/client_golang/prometheus"

// A Metric is one number of a collector.
type Metric struct {
	Desc *prometheus.Desc
	kind prometheus.ValueType
}

// Counter returns a counter; its name begins with "docstore_".
func Counter(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc("docstore_"+name, help, labels, nil), prometheus.CounterValue}
}

// Gauge returns a gauge; its name begins with "docstore_".
func Gauge(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc("docstore_"+name, help, labels, nil), prometheus.GaugeValue}
}

// Send sends a value with the values of the labels.
func (m Metric) Send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.Desc, m.kind, value, labels...)
}

// Bool returns 1 for true.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
