package core

import (
	"fmt"
	"math"
)

// The reserve of a limit is a quarter of it. It has to hold the interactive requests that
// arrive until a batch request ends: above the other three quarters no batch request begins,
// so those in flight make room at the rate at which they end. A server that has only batch
// does not use the reserve, so it must not be larger than such a burst.
const reserveDivisor = 4

// Reserve returns the part of a limit that batch requests leave to interactive ones: a
// quarter, at least 1, but not the whole limit. limit is at least 1.
func Reserve(limit int) int {
	return min(limit-1, max(1, limit/reserveDivisor))
}

// A Rate has the parameters of a token bucket: a mean rate of requests and a maximum
// burst.
//
// It implements the generic cell rate algorithm (ITU-T I.371). A bucket is an int64, the
// time at which it is full again; a request adds one interval. The zero bucket is full.
// Times must not be negative.
type Rate struct {
	interval int64 // nanoseconds between two requests
	depth    int64 // maximum difference of a bucket from now
}

// Bounds of a Rate.
const (
	MaxRate  = 1e9        // requests per second
	MinRate  = 1.0 / 3600 // requests per second
	MaxBurst = 1 << 20    // requests
)

// NewRate returns a rate of perSecond requests, from MinRate to MaxRate, with a burst
// of 1 to MaxBurst. The interval is rounded to whole nanoseconds: at a million requests
// per second the rate is accurate to 0.05 %.
func NewRate(perSecond float64, burst int) (Rate, error) {
	switch {
	case !(perSecond >= MinRate && perSecond <= MaxRate):
		return Rate{}, fmt.Errorf("rate %v per second: must be from 1 per hour to %.0f per second", perSecond, MaxRate)
	case burst < 1 || burst > MaxBurst:
		return Rate{}, fmt.Errorf("burst %d: must be from 1 to %d", burst, MaxBurst)
	}
	interval := int64(math.Round(1e9 / perSecond))
	return Rate{interval: interval, depth: interval * int64(burst)}, nil
}

// Burst returns the number of tokens of a full bucket.
func (r Rate) Burst() int { return int(r.depth / r.interval) }

// Take takes n tokens out of a bucket, and leaves at least keep, or none if it has fewer. It
// returns the new bucket.
func (r Rate) Take(now, bucket int64, n, keep int) (after int64, ok bool) {
	if n > r.Tokens(now, bucket)-keep {
		return bucket, false
	}
	return max(bucket, now) + int64(n)*r.interval, true
}

// Tokens returns the number of tokens in a bucket.
func (r Rate) Tokens(now, bucket int64) int {
	return int((now + r.depth - max(bucket, now)) / r.interval)
}

// Buckets is a bounded set of token buckets by key, all with the same rate. A new key
// beyond the limit evicts the least recently used bucket; the evicted key starts with a
// full bucket again. To keep the rate of each client, allow as many buckets as there
// are clients within the time that a bucket takes to fill.
type Buckets[K comparable] struct {
	rate    Rate
	index   map[K]int32
	entries []bucketEntry[K]
	newest  int32 // entries form a ring in the order of their last use; none if empty
}

type bucketEntry[K comparable] struct {
	key          K
	bucket       int64
	newer, older int32
}

// NewBuckets returns an empty set of at most limit buckets. limit is at least 1.
func NewBuckets[K comparable](rate Rate, limit int) Buckets[K] {
	return Buckets[K]{
		rate:    rate,
		index:   make(map[K]int32),
		entries: make([]bucketEntry[K], 0, limit),
		newest:  none,
	}
}

// Len returns the number of buckets.
func (b *Buckets[K]) Len() int { return len(b.entries) }

// Take takes n tokens out of the bucket of a key, and leaves at least keep, or none if it has
// fewer.
func (b *Buckets[K]) Take(now int64, key K, n, keep int) (ok bool) {
	i, known := b.index[key]
	switch {
	case !known:
		i = b.place(key)
	case i != b.newest:
		b.unlink(i)
		b.link(i)
	}
	e := &b.entries[i]
	e.bucket, ok = b.rate.Take(now, e.bucket, n, keep)
	return ok
}

// place adds a bucket for a new key.
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

// link inserts an entry into the ring as the newest.
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
