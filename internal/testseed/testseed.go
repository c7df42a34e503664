// Package testseed provides random seeds for tests: a new seed each run, which is
// logged and can be repeated with the flag -seed.
//
//	go test ./lsm -run TestModel -seed 1795238735295404372
//
// It registers the flag, so only tests may import it.
package testseed

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random tests; 0 chooses a new one each time")

// Seed returns and logs the seed of a test.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", seed)
	return seed
}

// PCG returns a generator seeded with the test's seed.
func PCG(t testing.TB) *rand.PCG {
	t.Helper()
	return rand.NewPCG(Seed(t), 0)
}

// Rand returns a rand.Rand seeded with the test's seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(PCG(t))
}
