// Package race tells tests whether the race detector is enabled. It makes copies of
// large values slow and makes sync.Pool drop items at random, so allocations cannot be
// counted.
package race
