// Package subsetmetrics measures the properties of subsetting algorithms that Ward,
// Wankadia and Guliani define in "Reinventing Backend Subsetting at Google" (2023), for
// the tests of package subset and for the figures in boxcarrpc/subset/README.md.
package subsetmetrics

import (
	"encoding/binary"
	"iter"
	"slices"

	"docstore/boxcarrpc/subset"
)

// Subsets are the subsets of all frontends.
type Subsets struct {
	Backends int   // number of backends
	members  []int // concatenated subsets
	size     int   // size of each subset
}

// Compute computes the subset of each frontend.
func Compute(a subset.Algorithm, frontends, backends, k int) Subsets {
	s := Subsets{Backends: backends, size: min(k, backends)}
	s.members = make([]int, 0, frontends*s.size)
	for i := range frontends {
		s.members = a.Subset(s.members, i, frontends, backends, k)
	}
	return s
}

// All yields the subset of each frontend.
func (s Subsets) All() iter.Seq[[]int] { return slices.Chunk(s.members, max(1, s.size)) }

// Connections counts the frontends that use each backend.
func (s Subsets) Connections() []int {
	counts := make([]int, s.Backends)
	for _, backend := range s.members {
		counts[backend]++
	}
	return counts
}

// Utilization is the number of connections per backend in an even distribution,
// rounded up, divided by that of the busiest backend: 1 is ideal.
func (s Subsets) Utilization() float64 {
	if len(s.members) == 0 {
		return 1
	}
	even := (len(s.members) + s.Backends - 1) / s.Backends
	return float64(even) / float64(slices.Max(s.Connections()))
}

// Utilizations returns the utilization of the first frontend alone, of the first two,
// and so on. These are the utilizations of smaller sets if the algorithm does not
// depend on the number of frontends.
func (s Subsets) Utilizations() (utilizations []float64) {
	counts := make([]int, s.Backends)
	total, most := 0, 0
	for subset := range s.All() {
		total += len(subset)
		for _, backend := range subset {
			counts[backend]++
			most = max(most, counts[backend])
		}
		even := (total + s.Backends - 1) / s.Backends
		utilizations = append(utilizations, float64(even)/float64(most))
	}
	return utilizations
}

// Distinct counts the different subsets, regardless of their order.
func (s Subsets) Distinct() int {
	distinct := 0
	for n := range s.distinct() {
		distinct = n
	}
	return distinct
}

// Diversities returns the number of different subsets per frontend, of the first
// frontend alone, of the first two, and so on: 1 if all are different.
func (s Subsets) Diversities() (diversities []float64) {
	for n := range s.distinct() {
		diversities = append(diversities, float64(n)/float64(len(diversities)+1))
	}
	return diversities
}

// distinct yields the number of different subsets after each frontend.
func (s Subsets) distinct() iter.Seq[int] {
	return func(yield func(int) bool) {
		seen := map[string]bool{}
		var key []byte
		for subset := range s.All() {
			key = key[:0]
			for _, backend := range slices.Sorted(slices.Values(subset)) {
				key = binary.LittleEndian.AppendUint32(key, uint32(backend))
			}
			seen[string(key)] = true
			if !yield(len(seen)) {
				return
			}
		}
	}
}

// Spread is the largest share of a subset within width consecutive backends, which a
// rolling restart stops together: 1 is a subset that is lost at once.
func (s Subsets) Spread(width int) float64 {
	worst := 0.0
	for subset := range s.All() {
		sorted := slices.Sorted(slices.Values(subset))
		first := 0
		for last, backend := range sorted {
			for backend-sorted[first] >= width {
				first++
			}
			worst = max(worst, float64(last-first+1)/float64(len(sorted)))
		}
	}
	return worst
}

// Churn returns the share of connections that a change adds, on average and for the
// worst frontend, of the frontends that exist before and after.
func Churn(before, after Subsets) (mean, worst float64) {
	next, stop := iter.Pull(before.All())
	defer stop()
	connections, made := 0, 0
	for subset := range after.All() {
		earlier, existed := next()
		if !existed {
			break
		}
		added := 0
		for _, backend := range subset {
			if !slices.Contains(earlier, backend) {
				added++
			}
		}
		connections += len(subset)
		made += added
		worst = max(worst, float64(added)/float64(len(subset)))
	}
	if connections == 0 {
		return 0, 0
	}
	return float64(made) / float64(connections), worst
}

// IdealBackendChurn is the minimum churn of a balanced algorithm when backends are
// added.
func IdealBackendChurn(before, after int) float64 {
	return max(0, 1-float64(before)/float64(after))
}
