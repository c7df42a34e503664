package subset_test

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/subset"
	"docstore/boxcarrpc/subset/subsetmetrics"
	"docstore/internal/testseed"
)

var writeGolden = flag.Bool("write-golden", false, "rewrite testdata/golden.txt; only for a change of the protocol")

// byName returns an algorithm. The suffixes "+b" and "+f" turn on backend and frontend
// scaling.
func byName(t testing.TB, name string) subset.Algorithm {
	t.Helper()
	parts := strings.Split(name, "+")
	a, err := subset.ByName(parts[0], &subset.Options{
		Seed:            1,
		BackendScaling:  slices.Contains(parts, "b"),
		FrontendScaling: slices.Contains(parts, "f"),
	})
	require.NoError(t, err)
	require.Equal(t, parts[0], a.Name())
	return a
}

// all returns the names of all algorithms and of the variants of ringsteady.
func all() []string {
	return append(subset.Names(), "ringsteady+b", "ringsteady+f", "ringsteady+b+f")
}

func TestByName(t *testing.T) {
	_, err := subset.ByName("sorted", nil)
	require.EqualError(t, err, `subset: unknown algorithm "sorted": must be one of random, roundrobin, deterministic, consistent, rendezvous, ringsteady, rocksteadier`)
	for _, size := range []int{-1, subset.MaxLotSize + 1} {
		_, err = subset.ByName("rocksteadier", &subset.Options{LotSize: size})
		require.EqualError(t, err, fmt.Sprintf("subset: lot size %d: must be from 1 to 256", size))
	}
	_, err = subset.ByName("rocksteadier", nil)
	require.NoError(t, err)
}

// A subset has min(k, backends) distinct backends for any arguments, and is appended
// to dst.
func TestArguments(t *testing.T) {
	random := testseed.Rand(t)
	numbers := []int{math.MinInt, -1, 0, 1, 2, 3, 7, 10, 55, 64, 65, 100}
	for _, name := range all() {
		a := byName(t, name)
		for range 2000 {
			pick := func() int { return numbers[random.IntN(len(numbers))] }
			frontend, frontends, backends, k := pick(), pick(), pick(), pick()
			if random.IntN(10) == 0 {
				frontend, frontends = math.MaxInt, math.MaxInt-random.IntN(2)
			}
			if random.IntN(10) == 0 {
				k = math.MaxInt
			}
			before := []int{-7}
			got := a.Subset(before, frontend, frontends, backends, k)
			require.Equal(t, before, got[:1])
			checkSubset(t, got[1:], backends, k, "%s(%d, %d, %d, %d)", name, frontend, frontends, backends, k)
		}
	}
	for _, name := range []string{"random", "roundrobin", "deterministic", "ringsteady", "ringsteady+b", "ringsteady+f", "ringsteady+b+f", "rocksteadier"} {
		got := byName(t, name).Subset(nil, math.MaxInt, math.MaxInt, math.MaxInt, 100)
		checkSubset(t, got, subset.MaxTasks, 100, "%s", name)
	}
}

func checkSubset(t *testing.T, got []int, backends, k int, format string, args ...any) {
	t.Helper()
	require.Len(t, got, max(0, min(k, backends)), append([]any{format}, args...)...)
	sorted := slices.Sorted(slices.Values(got))
	require.Len(t, slices.Compact(sorted), len(got), append([]any{format}, args...)...)
	if len(sorted) > 0 {
		require.GreaterOrEqual(t, sorted[0], 0)
		require.Less(t, sorted[len(sorted)-1], backends)
	}
}

// The chosen subsets are part of the protocol.
func TestGolden(t *testing.T) {
	const file = "golden.txt"
	var text strings.Builder
	for _, name := range all() {
		a := byName(t, name)
		for _, c := range [][4]int{{0, 5, 10, 4}, {7, 20, 55, 12}, {19, 20, 55, 55}, {123, 300, 1000, 20}, {9999, 10000, 1 << 20, 10}} {
			fmt.Fprintln(&text, name, c, a.Subset(nil, c[0], c[1], c[2], c[3]))
		}
	}
	path := filepath.Join("testdata", file)
	if *writeGolden {
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	got := bufio.NewScanner(strings.NewReader(text.String()))
	for line := range strings.Lines(string(want)) {
		require.True(t, got.Scan())
		require.Equal(t, strings.TrimSuffix(line, "\n"), got.Text())
	}
	require.False(t, got.Scan())
}

// The subset of size k is a prefix of the subset of size k+1, so that a change of the
// size changes as few connections as possible.
func TestPrefix(t *testing.T) {
	random := testseed.Rand(t)
	for _, name := range []string{"random", "consistent", "rendezvous", "ringsteady", "ringsteady+b", "ringsteady+f", "ringsteady+b+f", "rocksteadier"} {
		a := byName(t, name)
		for range 100 {
			frontends, backends := 1+random.IntN(300), 1+random.IntN(300)
			frontend := random.IntN(frontends)
			whole := a.Subset(nil, frontend, frontends, backends, backends)
			k := random.IntN(backends + 1)
			require.Equal(t, whole[:k], append([]int{}, a.Subset(nil, frontend, frontends, backends, k)...), "%s, k=%d", name, k)
		}
	}
}

// Without frontend scaling the number of frontends has no effect: adding or removing
// one does not change the subsets of others.
func TestOnlyFrontendScalingDependsOnFrontends(t *testing.T) {
	for _, name := range all() {
		a := byName(t, name)
		_, worst := subsetmetrics.Churn(subsetmetrics.Compute(a, 100, 150, 20), subsetmetrics.Compute(a, 101, 150, 20))
		require.Equal(t, strings.HasSuffix(name, "+f"), worst > 0, name)
		require.Equal(t, a.Subset(nil, 7, 100, 150, 20), a.Subset(nil, 7, 100, 150, 20))
	}
}

// The cases of the article's figure 2: up to 256 tasks, with more connections than
// backends.
const figure2Tasks, figure2K = 256, 20

func TestIdealBalance(t *testing.T) {
	for _, name := range []string{"roundrobin", "ringsteady+b+f"} {
		a := byName(t, name)
		for backends := figure2K; backends <= figure2Tasks; backends++ {
			for frontends := backends/figure2K + 1; frontends <= figure2Tasks; frontends++ {
				s := subsetmetrics.Compute(a, frontends, backends, figure2K)
				if u := s.Utilization(); u != 1 {
					require.Fail(t, "not ideal", "%s, %d frontends, %d backends: %v", name, frontends, backends, u)
				}
			}
		}
	}
}

// TestFigure2 checks what the article concludes from its figure 2: deterministic is
// best on average, backend scaling improves ringsteady if frontends outnumber
// backends, and random is worst.
func TestFigure2(t *testing.T) {
	type mean struct{ all, few, many float64 }
	means := map[string]mean{}
	for _, name := range []string{"random", "deterministic", "ringsteady", "ringsteady+b", "rocksteadier"} {
		var sum, count mean
		for backends := figure2K; backends <= figure2Tasks; backends++ {
			s := subsetmetrics.Compute(byName(t, name), figure2Tasks, backends, figure2K)
			for i, u := range s.Utilizations() {
				frontends := i + 1
				if frontends*figure2K <= backends {
					continue
				}
				sum.all, count.all = sum.all+u, count.all+1
				if frontends > backends {
					sum.many, count.many = sum.many+u, count.many+1
				} else {
					sum.few, count.few = sum.few+u, count.few+1
				}
			}
		}
		m := mean{sum.all / count.all, sum.few / count.few, sum.many / count.many}
		t.Logf("%-14s %.4f; M <= N %.4f; M > N %.4f", name, m.all, m.few, m.many)
		means[name] = m
	}
	require.Greater(t, means["deterministic"].all, means["ringsteady+b"].all)
	require.Greater(t, means["ringsteady+b"].all, means["ringsteady"].all)
	require.Greater(t, means["ringsteady"].all, means["random"].all+0.2)
	require.Greater(t, means["ringsteady+b"].many, means["ringsteady"].many)
	require.Greater(t, means["ringsteady"].few, means["ringsteady+b"].few, "a small degradation where M < N")
	require.Less(t, means["ringsteady"].few, means["ringsteady+b"].few+0.01, "a small degradation where M < N")
	require.InDelta(t, means["ringsteady+b"].all, means["rocksteadier"].all, 0.02, "without significantly degrading")
}

// With as many frontends as backends each frontend starts at the backend with its
// number.
func TestAsManyFrontendsAsBackends(t *testing.T) {
	for _, name := range []string{"ringsteady", "ringsteady+b+f"} {
		a := byName(t, name)
		for _, n := range []int{1, 2, 3, 6, 10, 55, 64, 100, 255} {
			s := subsetmetrics.Compute(a, n, n, min(n, 20))
			require.InDelta(t, 1, s.Utilization(), 0)
			if n > 20 {
				require.Equal(t, n, s.Distinct())
			}
			for i := range n {
				require.Equal(t, []int{i}, a.Subset(nil, i, n, n, 1))
			}
		}
	}
}

// newConnections returns the connections that a change of the backends adds: the
// maximum of any frontend, and the share of all connections.
func newConnections(a subset.Algorithm, frontends, before, after, k int) (worst int, share float64) {
	share, most := subsetmetrics.Churn(subsetmetrics.Compute(a, frontends, before, k), subsetmetrics.Compute(a, frontends, after, k))
	return int(math.Round(most * float64(k))), share
}

// backendCounts returns the numbers of backends for the churn tests: all up to
// figure2Tasks, or some of them for the slower algorithms that hash every backend.
func backendCounts(name string) (list []int) {
	step := 1
	if name == "consistent" || name == "rendezvous" {
		step = 29
	}
	for backends := figure2K; backends <= figure2Tasks; backends += step {
		list = append(list, backends)
	}
	return list
}

// With one more backend a frontend replaces at most one of its backends. With scaling
// its start may also move by one; rocksteadier scales its lots.
func TestOneMoreBackend(t *testing.T) {
	for name, most := range map[string]int{"consistent": 1, "rendezvous": 1, "ringsteady": 1, "ringsteady+b": 2, "rocksteadier": 2} {
		a := byName(t, name)
		for _, backends := range backendCounts(name) {
			worst, _ := newConnections(a, figure2Tasks, backends, backends+1, figure2K)
			require.LessOrEqual(t, worst, most, "%s, %d backends and one more", name, backends)
		}
	}
}

// When the backends double, about half of all connections are new. For algorithms
// without random choices the same holds for each frontend, up to the discrepancy of the
// van der Corput sequence: k consecutive places have at most log2(k)/3+1 too many of the
// new backends (Bejian and Faure, 1977), plus one if the last lot was padded.
func TestTwiceAsManyBackends(t *testing.T) {
	for name, padding := range map[string]float64{"consistent": math.Inf(1), "rendezvous": math.Inf(1), "ringsteady": 0, "ringsteady+b": 0, "rocksteadier": 1} {
		a := byName(t, name)
		for _, k := range []int{5, 10, figure2K, 40} {
			bound := float64(k)/2 + math.Log2(float64(k))/3 + 1 + padding
			most := 0
			for _, backends := range backendCounts(name) {
				worst, share := newConnections(a, figure2Tasks, max(backends, k), 2*max(backends, k), k)
				most = max(most, worst)
				require.Less(t, share, 0.56, "%s, k=%d, %d backends doubled", name, k, backends)
			}
			t.Logf("%-12s of %2d at most %2d, bound %.2f", name, k, most, bound)
			require.LessOrEqual(t, float64(most), bound, "%s, k=%d", name, k)
		}
	}
}

func TestDiversity(t *testing.T) {
	const frontends, backends, k = 1000, 100, 20
	distinct := map[string]int{}
	for _, name := range all() {
		distinct[name] = subsetmetrics.Compute(byName(t, name), frontends, backends, k).Distinct()
	}
	t.Log(distinct)
	require.Equal(t, backends/k, distinct["roundrobin"])
	require.LessOrEqual(t, distinct["consistent"], backends)
	require.LessOrEqual(t, distinct["ringsteady"], backends)
	for _, name := range []string{"random", "deterministic", "rendezvous", "rocksteadier"} {
		require.Equal(t, frontends, distinct[name], name)
	}
	for frontends := range 30 { // Table 1: N / gcd(k, N)
		got := subsetmetrics.Compute(byName(t, "roundrobin"), frontends, 10, 4).Distinct()
		require.Equal(t, min(frontends, 5), got)
	}
}

// An evenly spread subset of 20 of 300 backends has two of any 20 consecutive
// backends, or three at the boundary of two lots.
func TestSpread(t *testing.T) {
	const frontends, backends, k, width = 300, 300, 20, 20
	spread := map[string]float64{}
	for _, name := range all() {
		spread[name] = subsetmetrics.Compute(byName(t, name), frontends, backends, k).Spread(width)
	}
	t.Log(spread)
	require.InDelta(t, 1, spread["roundrobin"], 0)
	for _, name := range []string{"ringsteady", "ringsteady+b", "rocksteadier"} {
		require.LessOrEqual(t, spread[name], spread["random"]/2, name)
	}
}
