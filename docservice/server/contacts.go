package server

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/docservice/server/internal/metric"
	"docstore/internal/contact"
)

// contacts has the contacts with etcd by the flag that names it.
type contacts struct {
	mu sync.Mutex
	of map[string]*contact.Contact
}

// MeasureEtcd adds the contact with the etcd of a flag to the metrics.
func (s *Server) MeasureEtcd(flag string, c *contact.Contact) {
	s.contacts.mu.Lock()
	defer s.contacts.mu.Unlock()
	if s.contacts.of == nil {
		s.contacts.of = map[string]*contact.Contact{}
	}
	s.contacts.of[flag] = c
}

func (c *contacts) all() map[string]*contact.Contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

var etcdAge = metric.Gauge("etcd_last_contact_seconds", "Time since the etcd of a flag last answered.", "flag")

// contactCollector collects the metric of the contacts with etcd.
type contactCollector struct{ *Server }

func (c contactCollector) Describe(to chan<- *prometheus.Desc) { to <- etcdAge.Desc }

func (c contactCollector) Collect(to chan<- prometheus.Metric) {
	for flag, one := range c.contacts.all() {
		etcdAge.Send(to, one.Age().Seconds(), flag)
	}
}
