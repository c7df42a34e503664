// Package subsetmetrics measures the properties of subsetting algorithms as
// Ward, Wankadia and Guliani define them in "Reinventing Backend Subsetting at
// Google" (2023). Tests hold the algorithms to them, and the documentation's
// figures are made of them.
package subsetmetrics

import (
	"encoding/binary"
	"iter"
	"slices"

	"docstore/boxcarrpc/subset"
)

// Subsets are the subsets of all frontends of a set.
type Subsets struct {
	Backends int   // that there are
	members  []int // of one subset behind the other
	size     int   // of each
}

// Compute asks the algorithm for the subset of each frontend.
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

// Utilization is the connections of the busiest backend if all were even,
// rounded up, divided by those it has: 1 is ideal.
func (s Subsets) Utilization() float64 {
	if len(s.members) == 0 {
		return 1
	}
	even := (len(s.members) + s.Backends - 1) / s.Backends
	return float64(even) / float64(slices.Max(s.Connections()))
}

// Utilizations is the utilization of the first frontend alone, of the first two,
// and so on: that of smaller sets, if the algorithm does not look at how many
// frontends there are.
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

// Distinct counts the different subsets, whatever their order.
func (s Subsets) Distinct() int {
	distinct := 0
	for n := range s.distinct() {
		distinct = n
	}
	return distinct
}

// Diversities is how many different subsets the first frontend alone has, the first
// two, and so on, by the frontend: 1 if all are different.
func (s Subsets) Diversities() (diversities []float64) {
	for n := range s.distinct() {
		diversities = append(diversities, float64(n)/float64(len(diversities)+1))
	}
	return diversities
}

// distinct yields the number of different subsets as frontends come.
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

// Spread is the largest share of any subset that lies among width consecutive
// backends, as are restarted together: 1 is a subset that is gone at once.
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

// Churn compares the subsets of the frontends that there are before and after a
// change: the share of connections after it that are new, on average and for the
// worst frontend.
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

// IdealBackendChurn is what no algorithm that keeps the balance can go below
// when backends are added.
func IdealBackendChurn(before, after int) float64 {
	return max(0, 1-float64(before)/float64(after))
}
