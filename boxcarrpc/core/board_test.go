package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestBoardAgainstAMap(t *testing.T) {
	rng := testseed.PCG(t)
	for _, slots := range []int{1, 2, 63, 64, 65, 200} {
		b := NewBoard(make([]uint64, BoardWords(slots)), slots)
		taken := map[int32]bool{}
		lowest := func() int32 {
			for n := range int32(slots) {
				if !taken[n] {
					return n
				}
			}
			return NoSlot
		}
		for range 3000 {
			if uniform(rng, 5) < 3 {
				below := int32(uniform(rng, uint64(slots)+2))
				if uniform(rng, 2) == 0 {
					below = NoSlot
				}
				want := lowest()
				number, ok := b.Lease(below)
				require.Equal(t, want, number)
				require.Equal(t, want != NoSlot && want < below, ok)
				if ok {
					taken[number] = true
				}
			} else {
				number := int32(uniform(rng, uint64(slots)+4)) - 2
				require.Equal(t, taken[number], b.Release(number))
				delete(taken, number)
			}
			require.Equal(t, len(taken), b.Taken())
			require.Equal(t, lowest(), b.LowestFree())
		}
	}
}
