package memtable

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestRadixSortIsASort(t *testing.T) {
	r := testseed.Rand(t)
	for _, n := range []int{1, 2, radixMinimum - 1, radixMinimum, 5000} {
		for _, mask := range []uint64{0, 0xff, 0xff00ff00, 1 << 63, ^uint64(0)} {
			nodes := make([]orderedNode, n)
			for i := range nodes {
				nodes[i] = orderedNode{r.Uint64() & mask, ref(i)}
			}
			byPrefix := func(a, b orderedNode) int {
				return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.node, b.node))
			}
			want := slices.SortedFunc(slices.Values(nodes), byPrefix)
			got := nodes
			sortByPrefix(got)
			require.True(t, slices.IsSortedFunc(got, func(a, b orderedNode) int { return cmp.Compare(a.prefix, b.prefix) }))
			slices.SortFunc(got, byPrefix) // the order of equal prefixes is undefined
			require.Equal(t, want, got)
		}
	}
}

func BenchmarkSortByPrefix(b *testing.B) {
	const n = 180_000
	random := make([]orderedNode, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = orderedNode{r.Uint64(), ref(i)}
	}
	nodes := make([]orderedNode, n)
	for b.Loop() {
		copy(nodes, random)
		if sortByPrefix(nodes); nodes[0].prefix > nodes[n-1].prefix {
			b.Fatal("not sorted")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}
