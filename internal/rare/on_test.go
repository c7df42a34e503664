//go:build simulation

package rare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A seed decides for each place, and always the same.
func TestSmallLimits(t *testing.T) {
	defer Seed(0)
	small := map[string]int{}
	for s := range uint64(200) {
		Seed(s + 1)
		for _, place := range []string{"memtable", "increment"} {
			limit := Limit(place, 1000, 10)
			require.Equal(t, limit, Limit(place, 1000, 10))
			if limit == 10 {
				small[place]++
			}
		}
		require.Equal(t, 5, Limit("memtable", 5, 10), "a small limit is no larger")
	}
	for place, n := range small {
		require.InDelta(t, 100, n, 40, place)
	}
	require.Len(t, small, 2)
}

// A pause is long where a limit of the same place is small.
func TestLongPauses(t *testing.T) {
	defer Seed(0)
	for s := range uint64(20) {
		Seed(s + 1)
		rare := Limit("sweep", 1000, 10) == 10
		require.Equal(t, rare, Pause("sweep", time.Millisecond, time.Second) == time.Second)
		require.Equal(t, time.Minute, Pause("sweep", time.Minute, time.Second), "a long pause is no shorter")
	}
}
