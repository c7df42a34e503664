//go:build !race

package queue

// underRace tells that a sync.Pool drops what it is given at random, so that
// allocations cannot be counted.
const underRace = false
