package core

import "math/bits"

// Times is how long answers took of late: a histogram whose counts are halved
// every timesHalfLife, in steps of an eighth to a quarter of the time, or 2^20 ns.
// The zero Times is empty.
type Times struct {
	counts [timesBuckets]uint32
	total  uint32
	halved int64
}

const (
	timesHalfLife = 10e9
	timesUnitBits = 20 // a bucket is of 2^20 ns at least, about a millisecond
	timesMaxBits  = 13 // from 2^12 of these on, 4.3 s, all are one
	timesBuckets  = 4*(timesMaxBits-2) + 1
)

// Add counts an answer that took so many nanoseconds. It costs a few itself.
func (t *Times) Add(took int64) {
	if t.total == 1<<32-1 {
		t.halve()
	}
	t.counts[timesBucket(took)]++
	t.total++
}

// timesBucket is linear below four units, and then has four buckets for each
// power of two.
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

// timesEnd is where a bucket ends.
func timesEnd(bucket int) int64 {
	if bucket < 4 {
		return int64(bucket+1) << timesUnitBits
	}
	n := bucket/4 + 2
	return int64(4+bucket%4+1) << (n - 3 + timesUnitBits)
}

// P99 is the time, rounded up to its bucket's end, within which 99 of 100 answers
// have come; 0 if none have.
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
