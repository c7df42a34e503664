package metric

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sampleWait is the maximum time for which a scrape waits for the samples of all parts.
const sampleWait = time.Second

// A Sampler collects metrics in parts that may wait for a disk, or for locks that are held while
// others do. A scrape does not: it has the last sample of such a part. The zero value is ready to
// use, by any goroutine.
type Sampler struct {
	mu struct {
		sync.Mutex
		parts map[string]*part
	}
}

// part is one part of the metrics, as a collection.
type part struct {
	running chan struct{} // closed when the sample that is being taken is complete; nil: none is
	metrics []prometheus.Metric
	begun   time.Time // of that of metrics; before the first is complete, of that
}

// Collect sends the metrics that collect sends: now, or if it takes longer than sampleWait, when it
// was last called before. It returns the age of the metrics. collect is not called again for a part
// before it has returned.
func (s *Sampler) Collect(to chan<- prometheus.Metric, name string, collect func(chan<- prometheus.Metric)) (age time.Duration) {
	p, complete := s.begin(name, collect)
	timer := time.NewTimer(sampleWait)
	defer timer.Stop()
	select {
	case <-complete:
	case <-timer.C:
	}
	s.mu.Lock()
	metrics, age := p.metrics, time.Since(p.begun)
	s.mu.Unlock()
	for _, m := range metrics {
		to <- m
	}
	return age
}

// begin begins a sample of a part, unless one is being taken.
func (s *Sampler) begin(name string, collect func(chan<- prometheus.Metric)) (*part, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.parts == nil {
		s.mu.parts = map[string]*part{}
	}
	p := s.mu.parts[name]
	if p == nil {
		p = &part{begun: time.Now()}
		s.mu.parts[name] = p
	}
	if p.running != nil {
		return p, p.running
	}
	complete := make(chan struct{})
	p.running = complete
	go s.sample(p, collect)
	return p, complete
}

// sample takes a sample of a part.
func (s *Sampler) sample(p *part, collect func(chan<- prometheus.Metric)) {
	begun, sent := time.Now(), make(chan prometheus.Metric)
	go func() {
		defer close(sent)
		collect(sent)
	}()
	var metrics []prometheus.Metric
	for m := range sent {
		metrics = append(metrics, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.metrics, p.begun = metrics, begun
	close(p.running)
	p.running = nil
}
