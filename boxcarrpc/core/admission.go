package core

import (
	"fmt"
	"math"
)

// A Rate is what a token bucket lets through: so many requests a second in the
// long run, and a burst of so many at once after a rest.
//
// It is the generic cell rate algorithm (ITU-T I.371): a bucket is one int64, the
// moment at which it will be full again, and a request moves that by one interval.
// A bucket that is 0 is full. Time must not be negative.
type Rate struct {
	interval int64 // nanoseconds between two requests
	depth    int64 // how far ahead of now a bucket may be full again
}

// Bounds of a Rate.
const (
	MaxRate  = 1e9        // a second
	MinRate  = 1.0 / 3600 // one an hour
	MaxBurst = 1 << 20    // requests
)

// NewRate makes a rate of perSecond requests, within MinRate and MaxRate, and a
// burst of 1 to MaxBurst. The interval is rounded to whole nanoseconds: at a
// million a second the rate is right to 0.05 %.
func NewRate(perSecond float64, burst int) (Rate, error) {
	switch {
	case !(perSecond >= MinRate && perSecond <= MaxRate):
		return Rate{}, fmt.Errorf("a rate of %v a second: it must be within 1 an hour and %.0f a second", perSecond, MaxRate)
	case burst < 1 || burst > MaxBurst:
		return Rate{}, fmt.Errorf("a burst of %d: it must be within 1 and %d", burst, MaxBurst)
	}
	interval := int64(math.Round(1e9 / perSecond))
	return Rate{interval: interval, depth: interval * int64(burst)}, nil
}

// Take takes n requests out of a bucket, or none if it does not hold so many. It
// returns the bucket as it is then.
func (r Rate) Take(now, bucket int64, n int) (after int64, ok bool) {
	if n > r.Tokens(now, bucket) {
		return bucket, false
	}
	return max(bucket, now) + int64(n)*r.interval, true
}

// Tokens is how many requests a bucket would let through at once.
func (r Rate) Tokens(now, bucket int64) int {
	return int((now + r.depth - max(bucket, now)) / r.interval)
}

// Buckets are the buckets of clients, or of any other keys, all of one rate.
// There are at most as many as was said when they were made: then the one that
// was used longest ago is forgotten, and its client starts with a full one when it
// comes again. That is no gift to a client that rests for longer than the bucket
// takes to fill; make room for as many clients as come within that time.
type Buckets[K comparable] struct {
	rate    Rate
	index   map[K]int32
	entries []bucketEntry[K]
	newest  int32 // entries form a ring by their last use; none if it is empty
}

type bucketEntry[K comparable] struct {
	key          K
	bucket       int64
	newer, older int32
}

// NewBuckets makes room for limit buckets, at least 1.
func NewBuckets[K comparable](rate Rate, limit int) Buckets[K] {
	return Buckets[K]{
		rate:    rate,
		index:   make(map[K]int32),
		entries: make([]bucketEntry[K], 0, limit),
		newest:  none,
	}
}

// Len is how many buckets there are.
func (b *Buckets[K]) Len() int { return len(b.entries) }

// Take takes n requests out of the bucket of a key, or none if it does not hold
// so many.
func (b *Buckets[K]) Take(now int64, key K, n int) (ok bool) {
	i, known := b.index[key]
	switch {
	case !known:
		i = b.place(key)
	case i != b.newest:
		b.unlink(i)
		b.link(i)
	}
	e := &b.entries[i]
	e.bucket, ok = b.rate.Take(now, e.bucket, n)
	return ok
}

// place finds an entry for a new key.
func (b *Buckets[K]) place(key K) (i int32) {
	if len(b.entries) < cap(b.entries) {
		i = int32(len(b.entries))
		b.entries = append(b.entries, bucketEntry[K]{key: key})
	} else {
		i = b.entries[b.newest].newer // the oldest
		delete(b.index, b.entries[i].key)
		b.unlink(i)
		b.entries[i] = bucketEntry[K]{key: key}
	}
	b.index[key] = i
	b.link(i)
	return i
}

// link makes an entry that is not in the ring the newest.
func (b *Buckets[K]) link(i int32) {
	e := &b.entries[i]
	if b.newest == none {
		e.newer, e.older = i, i
	} else {
		newest := &b.entries[b.newest]
		e.older, e.newer = b.newest, newest.newer
		b.entries[e.newer].older = i
		newest.newer = i
	}
	b.newest = i
}

func (b *Buckets[K]) unlink(i int32) {
	e := &b.entries[i]
	switch {
	case e.older == i:
		b.newest = none
		return
	case b.newest == i:
		b.newest = e.older
	}
	b.entries[e.older].newer, b.entries[e.newer].older = e.newer, e.older
}
