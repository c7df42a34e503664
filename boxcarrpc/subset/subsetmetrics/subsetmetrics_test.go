package subsetmetrics

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fixed is an algorithm that returns subsets from a table.
type fixed [][]int

func (fixed) Name() string { return "fixed" }

func (f fixed) Subset(dst []int, frontend, _, _, k int) []int {
	return append(dst, f[frontend][:min(k, len(f[frontend]))]...)
}

func TestMetrics(t *testing.T) {
	s := Compute(fixed{{0, 1}, {1, 0}, {1, 4}}, 3, 5, 2)
	require.Equal(t, []int{2, 3, 0, 0, 1}, s.Connections())
	require.InDelta(t, 2.0/3, s.Utilization(), 0, "6 connections, 2 each at best")
	require.Equal(t, []float64{1, 0.5, 2.0 / 3}, s.Utilizations())
	require.Equal(t, 2, s.Distinct())
	require.Equal(t, []float64{1, 0.5, 2.0 / 3}, s.Diversities())
	require.InDelta(t, 1, s.Spread(2), 0)
	require.InDelta(t, 0.5, s.Spread(1), 0)
	require.InDelta(t, 0.5, Compute(fixed{{1, 4}}, 1, 5, 2).Spread(3), 0)
	require.InDelta(t, 1, Compute(fixed{{1, 4}}, 1, 5, 2).Spread(4), 0)
}

func TestChurn(t *testing.T) {
	before := Compute(fixed{{0, 1}, {2, 3}, {0, 4}}, 3, 5, 2)
	mean, worst := Churn(before, Compute(fixed{{1, 0}, {2, 4}}, 2, 5, 2))
	require.InDelta(t, 0.25, mean, 0)
	require.InDelta(t, 0.5, worst, 0)
	mean, worst = Churn(before, Compute(fixed{}, 0, 5, 2))
	require.Zero(t, mean)
	require.Zero(t, worst)
	require.InDelta(t, 0.5, IdealBackendChurn(10, 20), 0)
	require.Zero(t, IdealBackendChurn(20, 10))
}

func TestNoFrontends(t *testing.T) {
	for _, s := range []Subsets{Compute(fixed{}, 0, 5, 2), Compute(fixed{{}}, 1, 0, 2)} {
		require.InDelta(t, 1, s.Utilization(), 0)
		require.Empty(t, s.Utilizations())
		require.Zero(t, s.Distinct())
		require.Empty(t, s.Diversities())
		require.Zero(t, s.Spread(3))
	}
}
