// Package histogram counts durations.
package histogram

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram counts durations in steps of 1/128 of their size.
type Histogram struct {
	counts [64 * steps]uint64
	Total  uint64
	sum    float64
}

const (
	stepBits = 7
	steps    = 1 << stepBits
)

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.Total++
	h.sum += float64(d)
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.Total, h.sum = h.Total+other.Total, h.sum+other.sum
}

// Mean returns the mean, 0 if there are no durations.
func (h *Histogram) Mean() time.Duration { return time.Duration(h.sum / float64(max(h.Total, 1))) }

// Quantile returns a quantile, 0 if there are no durations.
func (h *Histogram) Quantile(share float64) time.Duration {
	rank := uint64(math.Ceil(share * float64(h.Total)))
	for i, n := range h.counts {
		if n >= rank && n > 0 {
			return time.Duration(middle(i))
		}
		rank -= min(rank, n)
	}
	return 0
}

func bucket(x uint64) int {
	n := bits.Len64(x)
	if n <= stepBits {
		return int(x)
	}
	shift := n - stepBits - 1
	return (shift+1)<<stepBits + int(x>>shift&(steps-1))
}

// middle returns the middle of a bucket.
func middle(bucket int) float64 {
	if bucket < steps {
		return float64(bucket)
	}
	shift := bucket>>stepBits - 1
	return (float64(steps+bucket&(steps-1)) + 0.5) * float64(uint64(1)<<shift)
}
