package residency

import (
	"sync/atomic"
	"time"
)

// The first bucket of Latencies ends at leastLatency, and each next one at twice as much.
const (
	leastLatency   = 64 * time.Microsecond
	latencyBuckets = 16
)

// Latencies is a histogram of durations.
type Latencies struct {
	Count  uint64
	Sum    time.Duration
	within [latencyBuckets]uint64 // those of smaller buckets not included
}

// Cumulative returns the number of durations up to each bound, in seconds.
func (l *Latencies) Cumulative() map[float64]uint64 {
	counts, total := make(map[float64]uint64, latencyBuckets), uint64(0)
	for i, n := range l.within {
		total += n
		counts[bounds[i]] = total
	}
	return counts
}

// bounds are the bounds of the buckets, in seconds.
var bounds = func() (bounds []float64) {
	for i := range latencyBuckets {
		bounds = append(bounds, (leastLatency << i).Seconds())
	}
	return bounds
}()

// Buckets returns the upper bounds of the buckets in seconds, which must not be changed, and
// the number of durations in each, followed by the number of those above the last bound.
func (l *Latencies) Buckets() (upper []float64, counts []uint64) {
	counts = append(l.within[:], l.Count)
	for _, n := range l.within {
		counts[latencyBuckets] -= n
	}
	return bounds, counts
}

// latencies are Latencies that are being counted.
type latencies struct {
	within     [latencyBuckets]atomic.Uint64
	count, sum atomic.Uint64
}

func (l *latencies) add(took time.Duration) {
	l.count.Add(1) // before the bucket: load reads in the opposite order
	l.sum.Add(uint64(took))
	for i := range l.within {
		if took <= leastLatency<<i {
			l.within[i].Add(1)
			break
		}
	}
}

func (l *latencies) load() (loaded Latencies) {
	for i := range l.within {
		loaded.within[i] = l.within[i].Load()
	}
	loaded.Sum, loaded.Count = time.Duration(l.sum.Load()), l.count.Load()
	return loaded
}
