//go:build simulation

package rare

import (
	"sync/atomic"
	"time"

	"docstore/internal/simulate/chance"
)

var seed atomic.Uint64 // 0: no simulation has begun

// Seed sets the seed of a run.
func Seed(s uint64) { seed.Store(s) }

// Limit returns the limit of a place: usual, or for some seeds small if that is less.
func Limit[N int | int64](place string, usual, small N) N {
	if isRare(place) {
		return min(usual, small)
	}
	return usual
}

// Pause returns the pause at a place: usual, or for some seeds long if that is more.
func Pause(place string, usual, long time.Duration) time.Duration {
	if isRare(place) {
		return max(usual, long)
	}
	return usual
}

// isRare reports whether the seed makes the event of a place frequent.
func isRare(place string) bool {
	s := seed.Load()
	if s == 0 {
		return false
	}
	d := chance.New(s).Next(place)
	return d.Bool(0.5)
}
