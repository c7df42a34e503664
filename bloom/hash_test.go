package bloom

import (
	"testing"

	bloomv3 "github.com/bits-and-blooms/bloom/v3"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// TestLocationsAreThoseOfTheLibrary compares the locations with bloom/v3's for keys of
// every length around the hash's blocks, and for long keys.
func TestLocationsAreThoseOfTheLibrary(t *testing.T) {
	random := testseed.Rand(t)
	check := func(key []byte) {
		h := HashKey(key)
		for i, want := range bloomv3.Locations(key, maxHashes) {
			require.Equal(t, want, h.location(uint64(i)), "location %d of key %x", i, key)
		}
	}
	for length := range 100 {
		for range 20 {
			key := make([]byte, length)
			for i := range key {
				key[i] = byte(random.Uint32())
			}
			check(key)
		}
	}
	check(make([]byte, MaxKeyBytes))
}

func FuzzHashKey(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("fifteen bytes !"))
	f.Add([]byte("seventeen bytes !"))
	f.Fuzz(func(t *testing.T, key []byte) {
		h := HashKey(key)
		for i, want := range bloomv3.Locations(key, maxHashes) {
			if got := h.location(uint64(i)); got != want {
				t.Fatalf("location %d: %d, want %d", i, got, want)
			}
		}
	})
}
