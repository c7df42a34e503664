package core

import "math/bits"

// Times is a histogram of recent response times. The counts are halved every 10 s. A
// bucket's width is an eighth to a quarter of the time, at least 2^20 ns. The zero Times
// is empty.
type Times struct {
	counts [timesBuckets]uint32
	total  uint32
	halved int64
}

const (
	timesHalfLife = 10e9
	timesUnitBits = 20 // the minimum width is 2^20 ns, about 1 ms
	timesMaxBits  = 13 // the last bucket starts at 2^12 units, 4.3 s
	timesBuckets  = 4*(timesMaxBits-2) + 1
)

// Add counts a response that took the given number of nanoseconds.
func (t *Times) Add(took int64) {
	if t.total == 1<<32-1 {
		t.halve()
	}
	t.counts[timesBucket(took)]++
	t.total++
}

// timesBucket returns the bucket of a time. Buckets are linear below four units; above,
// each power of two has four buckets.
func timesBucket(took int64) int {
	units := uint64(max(took, 0)) >> timesUnitBits
	n := bits.Len64(units)
	switch {
	case n < 3:
		return int(units)
	case n >= timesMaxBits:
		return timesBuckets - 1
	}
	return 4*(n-2) + int(units>>(n-3)&3)
}

// timesEnd returns the end of a bucket in nanoseconds.
func timesEnd(bucket int) int64 {
	if bucket < 4 {
		return int64(bucket+1) << timesUnitBits
	}
	n := bucket/4 + 2
	return int64(4+bucket%4+1) << (n - 3 + timesUnitBits)
}

// P99 returns the 99th percentile in nanoseconds, rounded up to the end of its bucket,
// or 0 if the histogram is empty.
func (t *Times) P99(now int64) int64 {
	if now-t.halved >= timesHalfLife {
		t.halved = now
		t.halve()
	}
	if t.total == 0 {
		return 0
	}
	beyond := t.total / 100
	for i := timesBuckets - 1; ; i-- {
		if t.counts[i] > beyond {
			return timesEnd(i)
		}
		beyond -= t.counts[i]
	}
}

func (t *Times) halve() {
	t.total = 0
	for i := range t.counts {
		t.counts[i] /= 2
		t.total += t.counts[i]
	}
}
