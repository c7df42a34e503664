package chance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDrawsDependOnTheirKeyOnly(t *testing.T) {
	draw := func(others int) (numbers []uint64) {
		c := New(7).Sub("disk")
		for range 4 {
			d := c.Next("a")
			numbers = append(numbers, d.Uint64(), d.Uint64())
			for range others {
				c.Next("b")
			}
		}
		return numbers
	}
	require.Equal(t, draw(0), draw(3))
	seen := map[uint64]bool{}
	for _, c := range []*Chance{New(7), New(8), New(7).Sub("disk"), New(7).Sub("network"), New(7).Sub("disk").Sub("network")} {
		for _, key := range []string{"a", "b"} {
			for range 100 {
				d := c.Next(key)
				seen[d.Uint64()], seen[d.Uint64()] = true, true
			}
		}
	}
	require.Len(t, seen, 2000)
}

func TestDrawsAreUniform(t *testing.T) {
	c := New(1)
	var counts [10]int
	yes := 0
	for range 100_000 {
		d := c.Next("key")
		counts[d.Int(10)]++
		if d.Bool(0.25) {
			yes++
		}
		took := d.Duration(time.Millisecond, time.Millisecond+3)
		require.GreaterOrEqual(t, took, time.Millisecond)
		require.LessOrEqual(t, took, time.Millisecond+3)
	}
	for _, n := range counts {
		require.InDelta(t, 10_000, n, 500)
	}
	require.InDelta(t, 25_000, yes, 800)
	d := c.Next("source")
	require.Less(t, rand.New(&d).IntN(5), 5)
}
