// Package race tells tests whether the race detector watches them: it makes copies of
// large values slow, and a sync.Pool drops what it is given at random, so that
// allocations cannot be counted.
package race
