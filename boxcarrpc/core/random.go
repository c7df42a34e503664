package core

import (
	"math/bits"
	"math/rand/v2"
)

// uniform returns a uniform random number from 0 to n-1. n is at least 1.
func uniform(rng *rand.PCG, n uint64) uint64 {
	// Lemire's method: the high word of the product is uniform if the few low words
	// that cause a bias are rejected.
	high, low := bits.Mul64(rng.Uint64(), n)
	if low < n {
		for unfair := -n % n; low < unfair; {
			high, low = bits.Mul64(rng.Uint64(), n)
		}
	}
	return high
}

// jitter returns a uniform random time from 0.5 to 1.5 times pause, so that clients
// that pause at the same time do not act at the same time.
func jitter(rng *rand.PCG, pause int64) int64 {
	return pause/2 + int64(uniform(rng, uint64(pause)+1))
}

// A backoff is a pause that doubles each time it is entered until level is reset.
type backoff struct {
	until int64
	level uint8
}

// enter starts a pause of base times two to the level, at most limit, with jitter.
func (b *backoff) enter(now, base, limit int64, rng *rand.PCG) {
	b.until = now + jitter(rng, doubled(base, limit, b.level))
	if b.level < 62 {
		b.level++
	}
}

// doubled returns base times two to the level, at most limit.
func doubled(base, limit int64, level uint8) int64 {
	if level >= 62 || base > limit>>level {
		return limit
	}
	return base << level
}
