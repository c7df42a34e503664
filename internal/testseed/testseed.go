// Package testseed gives random tests their randomness: another seed each time,
// logged, and the same one again with the flag -seed.
//
//	go test ./lsm -run TestModel -seed 1795238735295404372
//
// It registers the flag, so it is for tests only.
package testseed

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes another one each time")

// Seed returns the seed for a test, which it logs.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", seed)
	return seed
}

// PCG returns a generator that starts from the test's seed.
func PCG(t testing.TB) *rand.PCG {
	t.Helper()
	return rand.NewPCG(Seed(t), 0)
}

// Rand is PCG with the methods of rand.Rand.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(PCG(t))
}
