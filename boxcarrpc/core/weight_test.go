package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestLevelsAndNumbersAgree(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for range 10_000 {
		p := Peer{extra: rng.Int32N((MaxWeight - 1) * weightUnit), far: rng.IntN(2) == 0}
		level, number := rng.Int32N(1<<25), rng.Int32N(1<<24)
		require.Equal(t, p.level(number) < level, number < p.below(level), "%d, %d, weight %d/64", number, level, p.weight())
		if p.far {
			require.GreaterOrEqual(t, p.level(number), int32(farRaise), "above every near slot")
		} else {
			require.LessOrEqual(t, p.level(number), number)
		}
		require.Equal(t, NoSlot, p.below(NoSlot))
	}
	double := Peer{extra: weightUnit}
	for number, level := range []int32{0, 0, 1, 1, 2, 2} {
		require.Equal(t, level, double.level(int32(number)))
	}
}

// Two slots of a server of weight 2 are used for each slot of the others.
func TestSlotsAreUsedByLevel(t *testing.T) {
	rng := testseed.PCG(t)
	l := NewLadder(6, make([]Slot, 7), make([]Peer, 2))
	l.SetWeight(1, 2)
	for peer := range int32(2) {
		l.Join(0, peer, rng)
		l.RecordOutcome(0, peer, Success, rng)
	}
	for _, s := range [][2]int32{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {1, 3}} {
		_, _, _, ok := l.Grant(s[0], s[1])
		require.True(t, ok)
	}
	var order [][2]int32
	for range 6 {
		entry, ok := l.Acquire(0, rng)
		require.True(t, ok)
		number, peer, _, _, _ := l.Slot(entry)
		order = append(order, [2]int32{peer, number})
		defer l.Release(0, entry, Success, rng)
	}
	require.ElementsMatch(t, [][2]int32{{0, 0}, {1, 0}, {1, 1}}, order[:3])
	require.ElementsMatch(t, [][2]int32{{0, 1}, {1, 2}, {1, 3}}, order[3:])
	l.check(t)
	l.SetWeight(1, 1)
	l.check(t)
	below, ok := l.Bid(0)
	require.True(t, ok)
	require.Equal(t, int32(3), below, "its slot 3 is the highest")
}

// Half of the servers have four times the capacity. With weights they have four times
// the leases and requests; without, they have the same as the others.
func TestTrapMixedHardware(t *testing.T) {
	rng := testseed.PCG(t)
	for _, weighted := range []bool{true, false} {
		const servers, clients, size, concurrent = 10, 10, 50, 25
		f := newFleet(t, servers, clients, size, rng)
		want := 1.0
		if weighted {
			want = 4
			for _, c := range f.all {
				for s := int32(0); s < servers/2; s++ {
					c.ladder.SetWeight(s, want)
				}
			}
		}
		f.trust()
		f.settle(rng)
		f.check()
		big, small := 0, 0
		for s := range f.boards {
			if s < servers/2 {
				big += f.boards[s].Taken()
			} else {
				small += f.boards[s].Taken()
			}
		}
		require.InDelta(t, want, float64(big)/float64(small), 0.3*want)
		w := newWork(f, rng)
		for _, c := range f.all {
			for range concurrent {
				w.begin(c)
			}
		}
		clear(w.begun)
		for range 2000 {
			for _, c := range f.all {
				w.run(c, 1)
			}
		}
		big, small = 0, 0
		for s, n := range w.begun {
			if s < servers/2 {
				big += n
			} else {
				small += n
			}
		}
		require.InDelta(t, want, float64(big)/float64(small), 0.3*want)
	}
}
