package main

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"docstore/boxcarrpc/subset"
	"docstore/boxcarrpc/subset/subsetmetrics"
)

// The cases of the article's figure 2: up to figure2Tasks tasks, subsets of figure2K,
// and more connections than backends.
const figure2Tasks, figure2K = 256, 20

// A point is one case of figure 2.
type point struct{ ratio, utilization float64 }

// figure2 measures all cases of figure 2.
func figure2(v variant) ([]point, error) {
	a, err := v.algorithm()
	if err != nil {
		return nil, err
	}
	var points []point
	for backends := figure2K; backends <= figure2Tasks; backends++ {
		utilizations := subsetmetrics.Compute(a, figure2Tasks, backends, figure2K).Utilizations() // by number of frontends
		for frontends := backends/figure2K + 1; frontends <= figure2Tasks; frontends++ {
			points = append(points, point{float64(frontends) / float64(backends), utilizations[frontends-1]})
		}
	}
	return points, nil
}

func meanUtilization(points []point) float64 {
	sum := 0.0
	for _, p := range points {
		sum += p.utilization
	}
	return sum / float64(len(points))
}

// The sizes for the other properties.
const (
	frontends, backends, k = 100, 300, 20
	restarted              = 20 // consecutive backends
	manyFrontends          = 1000
)

// printProperties prints a table with a row for each algorithm.
func printProperties(out *bytes.Buffer) error {
	fmt.Fprintf(out, "| algorithm | utilization | distinct of %d | frontends %d to %d | backends %d to %d (ideal %s) | %d to %d (ideal %s) | size %d to %d | spread |\n",
		manyFrontends, frontends, frontends+1,
		backends, backends+1, percent(subsetmetrics.IdealBackendChurn(backends, backends+1)),
		backends, 2*backends, percent(subsetmetrics.IdealBackendChurn(backends, 2*backends)), k, k+1)
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	for _, v := range variants {
		a, err := v.algorithm()
		if err != nil {
			return err
		}
		points, err := figure2(v)
		if err != nil {
			return err
		}
		before := subsetmetrics.Compute(a, frontends, backends, k)
		churn := func(frontends, backends, k int) string {
			mean, worst := subsetmetrics.Churn(before, subsetmetrics.Compute(a, frontends, backends, k))
			return fmt.Sprintf("%s, worst %s", percent(mean), percent(worst))
		}
		fmt.Fprintf(out, "| %s | %.3f | %d | %s | %s | %s | %s | %s |\n", v.title, meanUtilization(points),
			subsetmetrics.Compute(a, manyFrontends, backends, k).Distinct(),
			churn(frontends+1, backends, k), churn(frontends, backends+1, k), churn(frontends, 2*backends, k), churn(frontends, backends, k+1),
			percent(before.Spread(restarted)))
	}
	fmt.Fprintln(out)
	return nil
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// lotSizes are the compared lot sizes.
var lotSizes = []int{1, 5, 10, 20, 50}

func lotVariant(size int) variant {
	return variant{title: fmt.Sprintf("L = %d", size), name: "rocksteadier", options: subset.Options{LotSize: size}}
}

// meanDiversity returns the number of different subsets per frontend, averaged over
// the cases of figure 2.
func meanDiversity(v variant) (float64, error) {
	a, err := v.algorithm()
	if err != nil {
		return 0, err
	}
	sum, cases := 0.0, 0
	for backends := figure2K; backends <= figure2Tasks; backends++ {
		diversities := subsetmetrics.Compute(a, figure2Tasks, backends, figure2K).Diversities()
		for _, d := range diversities[backends/figure2K:] {
			sum += d
			cases++
		}
	}
	return sum / float64(cases), nil
}

// tradeOff returns the utilization and the diversity of a variant, both averaged over
// the cases of figure 2.
func tradeOff(v variant) (utilization, diversity float64, err error) {
	points, err := figure2(v)
	if err != nil {
		return 0, 0, err
	}
	diversity, err = meanDiversity(v)
	return meanUtilization(points), diversity, err
}

// printLotSizes prints the utilization and diversity of rocksteadier's lot sizes.
func printLotSizes(out *bytes.Buffer) error {
	fmt.Fprintf(out, "| lot size | utilization | diversity | distinct of %d, %d backends | and of %d, 50 backends |\n|---|---|---|---|---|\n", manyFrontends, backends, manyFrontends)
	for _, size := range lotSizes {
		v := lotVariant(size)
		a, err := v.algorithm()
		if err != nil {
			return err
		}
		utilization, diversity, err := tradeOff(v)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %d | %.3f | %.3f | %d | %d |\n", size, utilization, diversity,
			subsetmetrics.Compute(a, manyFrontends, backends, k).Distinct(), subsetmetrics.Compute(a, manyFrontends, 50, k).Distinct())
	}
	return nil
}

// printLarge prints the distribution of connections in a very large fleet.
func printLarge(out *bytes.Buffer) error {
	const frontends, backends = 10_000, 1_000_000
	fmt.Fprintln(out, "| algorithm | k | mean connections | idle backends | most connections |\n|---|---|---|---|---|")
	for _, k := range []int{100, 2000} {
		for _, v := range variants {
			a, err := v.algorithm()
			if err != nil {
				return err
			}
			counts := connections(a, frontends, backends, k)
			idle := 0
			for _, n := range counts {
				if n == 0 {
					idle++
				}
			}
			fmt.Fprintf(out, "| %s | %d | %d | %s | %d |\n", v.title, k, frontends*k/backends, percent(float64(idle)/backends), slices.Max(counts))
		}
	}
	return nil
}

// connections counts the connections of each backend, on all processors.
func connections(a subset.Algorithm, frontends, backends, k int) []int {
	workers := runtime.GOMAXPROCS(0)
	counts := make([][]int, workers)
	var done sync.WaitGroup
	for w := range workers {
		done.Go(func() {
			counts[w] = make([]int, backends)
			var chosen []int
			for frontend := w; frontend < frontends; frontend += workers {
				chosen = a.Subset(chosen[:0], frontend, frontends, backends, k)
				for _, backend := range chosen {
					counts[w][backend]++
				}
			}
		})
	}
	done.Wait()
	for _, more := range counts[1:] {
		for i, n := range more {
			counts[0][i] += n
		}
	}
	return counts[0]
}
