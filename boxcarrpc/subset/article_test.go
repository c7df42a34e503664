package subset

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
)

// The article's printed examples.

func TestTable1(t *testing.T) {
	want := [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 0, 1}, {2, 3, 4, 5}, {6, 7, 8, 9}, {0, 1, 2, 3}}
	for frontend, subset := range want {
		require.Equal(t, subset, roundRobin{}.Subset(nil, frontend, len(want), 10, 4))
	}
}

// withShuffles returns deterministic with the shuffles given as tables.
func withShuffles(left uint64, shuffles ...[]uint64) deterministic {
	return deterministic{func(round, n, i uint64) uint64 {
		all := n + left
		afterLeft := (round*left + left) % all
		return (shuffles[round][i] + all - afterLeft) % all
	}}
}

func TestDeterministicExample(t *testing.T) {
	a := withShuffles(2, []uint64{8, 3, 9, 2, 4, 6, 5, 7}, []uint64{9, 7, 1, 6, 0, 5, 4, 8})
	for frontend, want := range [][]int{{8, 3, 9, 2}, {4, 6, 5, 7}, {9, 7, 1, 6}, {0, 5, 4, 8}} {
		require.Equal(t, want, a.Subset(nil, frontend, 4, 10, 4))
	}
}

// The older form shuffles all backends and leaves over the last ones.
func TestDeterministicWithLastBackendsLeftOver(t *testing.T) {
	a := withShuffles(2, []uint64{9, 1, 3, 0, 8, 6, 5, 7, 2, 4}, []uint64{7, 2, 0, 8, 9, 1, 4, 5, 3, 6})
	for frontend, want := range [][]int{{9, 1, 3, 0}, {8, 6, 5, 7}, {7, 2, 0, 8}} {
		require.Equal(t, want, a.Subset(nil, frontend, 3, 10, 4))
	}
}

func TestVanDerCorput(t *testing.T) {
	require.Equal(t, uint64(160), bits.Reverse64(5)>>56)
	require.Equal(t, uint64(160), ring{n: 256, bits: 8}.reversed(5))
}

func TestFigure4(t *testing.T) {
	for name, a := range map[string]ringsteady{"b": {}, "c": {backendScaling: true}} {
		require.Equal(t, []int{1, 5, 3, 0, 4, 2}, a.Subset(nil, 1, 2, 6, 6), name)
	}
}

// TestOrderOfTen: the article prints [0 8 2 4 6 1 9 5 3 7], but 4 is at 1/8 and
// 2 at 1/4.
func TestOrderOfTen(t *testing.T) {
	require.Equal(t, []int{0, 8, 4, 2, 6, 1, 9, 5, 3, 7}, ringsteady{}.Subset(nil, 0, 1, 10, 10))
}

// TestTable3 has the shuffles of the article's table, with the lots in the order of
// their numbers and the rows in the order of the frontends.
func TestTable3(t *testing.T) {
	table := [10][6]uint64{
		0: {8, 13, 22, 30, 40, 50}, // follows the last row
		3: {4, 14, 21, 39, 46, 52},
		4: {7, 18, 20, 31, 41, 51},
		9: {6, 10, 20, 30, 44, 55},
	}
	a := newRocksteadier(0, 10)
	a.lots = func(ring, uint64) uint64 { return 0 }
	for i := range a.rows {
		a.rows[i] = uint64(i)
	}
	order := newRing(6)
	columns := map[uint64]uint64{} // column of each lot, in the order of their numbers
	place := uint64(0)
	for column := range uint64(6) {
		var lot uint64
		lot, place = order.next(place)
		columns[lot] = column
	}
	a.entry = func(frontendLot, lot, row uint64) uint64 {
		require.Equal(t, uint64(1), frontendLot)
		return table[row][columns[lot]] - lot*10 // relative to the lot that was asked for
	}
	require.Equal(t, []int{4, 14, 21, 39, 46, 52, 7, 18}, a.Subset(nil, 13, 20, 55, 8))
	require.Equal(t, []int{6, 10, 20, 30, 44, 8, 13, 22}, a.Subset(nil, 19, 20, 55, 8))
}

// The lots are in ringsteady's order for the frontend lot.
func TestTable4(t *testing.T) {
	a := newRocksteadier(0, 10)
	for _, frontend := range []int{10, 13, 19} {
		for i, task := range a.Subset(nil, frontend, 20, 60, 60) {
			require.Equal(t, []int{1, 5, 3, 0, 4, 2}[i%6], task/10)
		}
	}
}

// Within a row's length, the frontends of one lot have disjoint subsets.
func TestFrontendsOfALotHaveDisjointSubsets(t *testing.T) {
	a := newRocksteadier(7, 10)
	used := map[int]int{}
	for frontend := 30; frontend < 40; frontend++ {
		for _, backend := range a.Subset(nil, frontend, 100, 200, 20) {
			used[backend]++
		}
	}
	require.Len(t, used, 200)
}

// TestRing compares rank, byRank and next with a sorted list.
func TestRing(t *testing.T) {
	for n := uint64(1); n <= 300; n++ {
		r := newRing(n)
		var order []uint64
		for place := range uint64(1) << r.bits {
			if task := r.reversed(place); task < n {
				order = append(order, task)
			}
		}
		place := uint64(0)
		for rank, task := range order {
			require.Equal(t, uint64(rank), r.rank(task))
			require.Equal(t, task, r.byRank(uint64(rank)))
			var got uint64
			got, place = r.next(place)
			require.Equal(t, task, got)
		}
	}
}

// A permutation has every number once, and is uniform over the keys.
func TestPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 5, 10, 16, 17, 1000} {
		p, seen := newPermutation(1, n), map[uint64]bool{}
		for i := range n {
			seen[p.at(i)] = true
		}
		require.Len(t, seen, int(n))
	}
	const n, keys = 10, 20_000
	var counts [n][n]int
	var shuffles [n][n]int
	for key := range uint64(keys) {
		p := newPermutation(key, n)
		for i := range uint64(n) {
			counts[i][p.at(i)]++
			shuffles[i][shuffled(key, n, i)]++
		}
	}
	for i := range n {
		for j := range n {
			require.InEpsilon(t, keys/n, counts[i][j], 0.15)
			require.InEpsilon(t, keys/n, shuffles[i][j], 0.15)
		}
	}
}
