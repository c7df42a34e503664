package core

import (
	"math/bits"
	"math/rand/v2"
)

// uniform returns a number from 0 to n-1, each as likely as the other. n is at
// least 1.
func uniform(rng *rand.PCG, n uint64) uint64 {
	// Lemire's method: the high word of a product is uniform once the few low
	// words that would favour some results are thrown away.
	high, low := bits.Mul64(rng.Uint64(), n)
	if low < n {
		for unfair := -n % n; low < unfair; {
			high, low = bits.Mul64(rng.Uint64(), n)
		}
	}
	return high
}

// jitter spreads a pause evenly over half to one and a half of its length, so
// that clients that were set off together do not act together.
func jitter(rng *rand.PCG, pause int64) int64 {
	return pause/2 + int64(uniform(rng, uint64(pause)+1))
}

// A backoff is a pause that doubles each time it is entered until it is reset.
type backoff struct {
	until int64
	level uint8
}

// enter begins a pause of base doubled for each earlier one, at most limit.
func (b *backoff) enter(now, base, limit int64, rng *rand.PCG) {
	b.until = now + jitter(rng, doubled(base, limit, b.level))
	if b.level < 62 {
		b.level++
	}
}

// doubled is base times two to the level, at most limit.
func doubled(base, limit int64, level uint8) int64 {
	if level >= 62 || base > limit>>level {
		return limit
	}
	return base << level
}
