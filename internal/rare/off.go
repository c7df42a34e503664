//go:build !simulation

package rare

import "time"

// Seed sets the seed of a run.
func Seed(uint64) {}

// Limit returns usual.
func Limit[N int | int64](_ string, usual, _ N) N { return usual }

// Pause returns usual.
func Pause(_ string, usual, _ time.Duration) time.Duration { return usual }
