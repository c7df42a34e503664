package collection

import "time"

// Bounds of a Freshness: the first bucket ends at leastFreshness, each next one at twice as much, up to
// 87 minutes.
const (
	leastFreshness   = 10 * time.Millisecond
	freshnessBuckets = 20
)

// freshnessBounds are the bounds in seconds.
var freshnessBounds = func() (bounds []float64) {
	for i := range freshnessBuckets {
		bounds = append(bounds, (leastFreshness << i).Seconds())
	}
	return bounds
}()

// Freshness is a histogram of the time until a collection serves entries, by the clocks of both
// machines: from the append to the queue, where a batch counts once, with its oldest entry, or of
// canaries from the event at the source. Entries that existed when the collection was opened do not
// count.
type Freshness struct {
	Count uint64
	Sum   time.Duration
	upTo  [freshnessBuckets]uint64 // cumulative
}

// Cumulative returns the number of values up to each bound, in seconds.
func (f *Freshness) Cumulative() map[float64]uint64 {
	counts := make(map[float64]uint64, freshnessBuckets)
	for i, bound := range freshnessBounds {
		counts[bound] = f.upTo[i]
	}
	return counts
}

// Buckets returns the upper bounds of the buckets in seconds, which must not be changed, and the
// number of values in each, followed by the number of those above the last bound.
func (f *Freshness) Buckets() (upper []float64, counts []uint64) {
	before := uint64(0)
	for _, n := range f.upTo {
		counts, before = append(counts, n-before), n
	}
	return freshnessBounds, append(counts, f.Count-before)
}

// add counts a value.
func (f *Freshness) add(took time.Duration) {
	took = max(0, took)
	f.Count++
	f.Sum += took
	for i := range f.upTo {
		if took <= leastFreshness<<i {
			f.upTo[i]++
		}
	}
}
