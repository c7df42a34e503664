package main

import (
	"math/bits"
	"time"
)

// histogram counts durations with an error of a sixteenth at most: of a number of
// nanoseconds it keeps the five highest bits.
type histogram struct{ counts [64 * 16]uint64 }

func (h *histogram) add(d time.Duration) {
	n := uint64(max(d, 0))
	shift := max(0, bits.Len64(n)-5)
	h.counts[shift*16+int(n>>shift)]++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// quantile returns a duration that a share q of all do not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	var all, seen uint64
	for _, n := range h.counts {
		all += n
	}
	for i, n := range h.counts {
		if seen += n; n > 0 && float64(seen) >= q*float64(all) {
			shift := max(0, i/16-1)
			return time.Duration(uint64(i-shift*16+1)<<shift - 1)
		}
	}
	return 0
}
