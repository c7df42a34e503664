package livepage

import (
	"math"
	"sync"
	"time"
)

// A sample is taken every second and kept for five minutes. Rates and percentiles in
// figures cover the last ten seconds.
const (
	sampleInterval = time.Second
	sampleCount    = 300
	figureSamples  = 10
)

// Sample holds the values recorded every second. They are totals, so a missed sample only
// makes a longer step.
type Sample struct {
	Time        time.Time
	Methods     []MethodSample     // always the same methods in the same order
	Collections []CollectionSample // others may be added
	Boxcar      BoxcarSample
}

// collection returns the collection with the name; false if there is none.
func (s *Sample) collection(name string) (CollectionSample, bool) {
	for _, c := range s.Collections {
		if c.Name == name {
			return c, true
		}
	}
	return CollectionSample{}, false
}

// BoxcarSample holds the totals of slots.
type BoxcarSample struct{ Leases, Refused uint64 }

// MethodSample holds the latencies of a method since the start of the daemon.
type MethodSample struct {
	Listener, Method string
	Latencies        Histogram
}

// Histogram counts the values up to each bound and above the previous one; the last count
// is that of values above all bounds.
type Histogram struct {
	Bounds []float64 // seconds, ascending; shared, never changed
	Counts []uint64  // one more than Bounds
}

// CollectionSample holds the totals of a collection.
type CollectionSample struct {
	Name         string
	Found        uint64
	LagBytes     int64
	VisibleAfter float64 // seconds
	Freshness    Histogram
	Canaries     Histogram
	// Reads of segments and index that waited for the disk; without Bounds: not measured.
	ColdQueue, ColdIndex Histogram
}

// recorder keeps the latest samples.
type recorder struct {
	mu      sync.Mutex
	samples []Sample // oldest first
}

func (r *recorder) add(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == sampleCount {
		copy(r.samples, r.samples[1:])
		r.samples = r.samples[:sampleCount-1]
	}
	r.samples = append(r.samples, s)
}

// history returns the samples.
func (r *recorder) history() []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Sample(nil), r.samples...)
}

// last returns at most the last n+1 samples, for n steps.
func last(samples []Sample, n int) []Sample { return samples[max(0, len(samples)-n-1):] }

// minus returns the counts between two samples. It is 0 where a count is smaller than before:
// a shard has left.
func (h Histogram) minus(before Histogram) Histogram {
	counts := make([]uint64, len(h.Counts))
	for i := range counts {
		counts[i] = h.Counts[i] - min(before.Counts[i], h.Counts[i])
	}
	return Histogram{h.Bounds, counts}
}

// Plus returns the counts of both. Either may be the zero Histogram.
func (h Histogram) Plus(other Histogram) Histogram {
	switch {
	case h.Counts == nil:
		return other
	case other.Counts == nil:
		return h
	}
	counts := make([]uint64, len(h.Counts))
	for i := range counts {
		counts[i] = h.Counts[i] + other.Counts[i]
	}
	return Histogram{h.Bounds, counts}
}

func (h Histogram) total() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// quantile estimates the latency below which a fraction q of the values lies, assuming a
// logarithmic distribution within its bucket. It is 0 without values, and the last bound if
// the result is above it.
func (h Histogram) quantile(q float64) float64 {
	rank := q * float64(h.total())
	if rank == 0 {
		return 0
	}
	seen := 0.0
	for i, c := range h.Counts {
		if seen+float64(c) < rank {
			seen += float64(c)
			continue
		}
		if i == len(h.Bounds) {
			break
		}
		upper := h.Bounds[i]
		lower := upper / 2
		if i > 0 {
			lower = h.Bounds[i-1]
		}
		return lower * math.Pow(upper/lower, (rank-seen)/float64(c))
	}
	return h.Bounds[len(h.Bounds)-1]
}

// latencies returns the figures of each method for the latest samples.
func latencies(samples []Sample) []Latency {
	if len(samples) == 0 {
		return nil
	}
	recent := last(samples, figureSamples)
	from, to := recent[0], recent[len(recent)-1]
	seconds := to.Time.Sub(from.Time).Seconds()
	var result []Latency
	for i, method := range to.Methods {
		l := Latency{Listener: method.Listener, Method: method.Method, Total: method.Latencies.total()}
		if seconds > 0 {
			step := method.Latencies.minus(from.Methods[i].Latencies)
			l.PerSecond = float64(step.total()) / seconds
			l.P50, l.P99 = step.quantile(0.5), step.quantile(0.99)
		}
		result = append(result, l)
	}
	return result
}

// coldReads returns the figures of the cold reads of a collection, in its queue or its index,
// for the latest samples, nil if they are not measured.
func coldReads(samples []Sample, collection string, of func(CollectionSample) Histogram) *ColdReads {
	first, latest, seconds := ends(last(samples, figureSamples), collection, of)
	if latest.Bounds == nil {
		return nil
	}
	cold := &ColdReads{Total: latest.total()}
	if seconds > 0 {
		step := latest.minus(first)
		cold.PerSecond = float64(step.total()) / seconds
		cold.P50, cold.P99 = step.quantile(0.5), step.quantile(0.99)
	}
	return cold
}

// freshness returns the figures of a collection for all samples.
func freshness(samples []Sample, collection string, of func(CollectionSample) Histogram) Freshness {
	first, latest, seconds := ends(samples, collection, of)
	f := Freshness{Total: latest.total()}
	if seconds > 0 {
		step := latest.minus(first)
		f.P50, f.P99 = step.quantile(0.5), step.quantile(0.99)
	}
	return f
}

// ends returns the first and the last histogram of a collection, and the seconds between them.
// Without Bounds there is none.
func ends(samples []Sample, collection string, of func(CollectionSample) Histogram) (first, latest Histogram, seconds float64) {
	var from, to time.Time
	for _, s := range samples {
		c, _ := s.collection(collection)
		values := of(c)
		if values.Bounds == nil {
			continue // it was added later
		}
		if first.Bounds == nil {
			first, from = values, s.Time
		}
		latest, to = values, s.Time
	}
	return first, latest, to.Sub(from).Seconds()
}

// steps calls fn for each pair of consecutive samples.
func steps(samples []Sample, fn func(from, to *Sample, seconds float64) float64) []float64 {
	var values []float64
	for i := 1; i < len(samples); i++ {
		from, to := &samples[i-1], &samples[i]
		if seconds := to.Time.Sub(from.Time).Seconds(); seconds > 0 {
			values = append(values, fn(from, to, seconds))
		}
	}
	return values
}

// stepsOf is steps for a collection, from its first sample on.
func stepsOf(samples []Sample, collection string, fn func(from, to CollectionSample, seconds float64) float64) []float64 {
	for len(samples) > 0 {
		if _, there := samples[0].collection(collection); there {
			break
		}
		samples = samples[1:]
	}
	return steps(samples, func(a, b *Sample, seconds float64) float64 {
		from, _ := a.collection(collection)
		to, _ := b.collection(collection)
		return fn(from, to, seconds)
	})
}

// documentsPerSecond returns the rate of found documents of a collection over time.
func documentsPerSecond(samples []Sample, collection string) []float64 {
	return stepsOf(samples, collection, func(from, to CollectionSample, seconds float64) float64 {
		return float64(to.Found-min(from.Found, to.Found)) / seconds // fewer when a shard has left
	})
}

// leasesPerSecond and refusedPerSecond return the rates of slot leases and of refused
// requests over time.
func leasesPerSecond(samples []Sample) []float64 {
	return steps(samples, func(from, to *Sample, seconds float64) float64 {
		return float64(to.Boxcar.Leases-from.Boxcar.Leases) / seconds
	})
}

func refusedPerSecond(samples []Sample) []float64 {
	return steps(samples, func(from, to *Sample, seconds float64) float64 {
		return float64(to.Boxcar.Refused-from.Boxcar.Refused) / seconds
	})
}

// percentile returns a percentile of the latency of all requests over time.
func percentile(samples []Sample, q float64) []float64 {
	return steps(samples, func(from, to *Sample, _ float64) float64 {
		var all Histogram
		for i := range to.Methods {
			all = all.Plus(to.Methods[i].Latencies.minus(from.Methods[i].Latencies))
		}
		return all.quantile(q)
	})
}

// requestsPerSecond returns the rate of all requests over time.
func requestsPerSecond(samples []Sample) []float64 {
	return steps(samples, func(from, to *Sample, seconds float64) float64 {
		var n uint64
		for i := range to.Methods {
			n += to.Methods[i].Latencies.total() - from.Methods[i].Latencies.total()
		}
		return float64(n) / seconds
	})
}

// visibleAfter returns the append-to-index delay of a collection over time.
func visibleAfter(samples []Sample, collection string) []float64 {
	return stepsOf(samples, collection, func(_, to CollectionSample, _ float64) float64 { return to.VisibleAfter })
}

// lagBytes returns the bytes of the queue that were not in the index, over time.
func lagBytes(samples []Sample, collection string) []float64 {
	return stepsOf(samples, collection, func(_, to CollectionSample, _ float64) float64 { return float64(to.LagBytes) })
}
