package subset_test

import (
	"fmt"
	"testing"

	"docstore/boxcarrpc/subset"
)

// BenchmarkSubset computes the subset of one of 10,000 frontends: 100 of 1,000,000
// backends.
func BenchmarkSubset(b *testing.B) {
	const frontends, backends, k = 10_000, 1_000_000, 100
	for _, name := range append(subset.Names(), "ringsteady+b") {
		b.Run(fmt.Sprintf("algorithm=%s", name), func(b *testing.B) {
			a := byName(b, name)
			dst := make([]int, 0, k)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if dst = a.Subset(dst[:0], i%frontends, frontends, backends, k); len(dst) != k {
					b.Fatal(len(dst))
				}
			}
		})
	}
}
