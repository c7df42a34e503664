package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// compare measures the contestants under each load and prints a table.
func compare(s settings, title string, all []contestant, loads ...load) (err error) {
	servers, stop, err := startChildren(all)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	for _, l := range loads {
		results := make([][]result, len(all))
		for round := range s.rounds {
			for i, c := range all {
				kept, err := s.keeper.Measure(c.name, l.phase(title), round+1, func() (map[string]float64, error) {
					r, err := measure(c, servers[i], l)
					return r.figures(), err
				})
				if err != nil {
					return fmt.Errorf("%s, %d callers: %w", c.name, l.callers, err)
				}
				results[i] = append(results[i], resultOf(kept))
			}
		}
		report(l.phase(title), all, l.callers, results)
	}
	return nil
}

// report writes a row for each contestant: the median of each figure, and the median of the rounds'
// ratios.
func report(title string, all []contestant, callers int, results [][]result) {
	fmt.Printf("\n# %s\n%-14s %8s %11s %17s %6s %9s %9s %9s  %-27s %8s %8s %10s %9s\n", title, "", "callers", "calls/s", "slowest-fastest",
		"ratio", "p50", "p99", "cpu", "client u+s, server u+s", "syscalls", "switches", "allocs c+s", "MB c+s")
	for i, c := range all {
		rounds := results[i]
		rates := sorted(rounds, func(r result) float64 { return r.rate })
		ratios := make([]float64, len(rounds))
		for k := range rounds {
			ratios[k] = rounds[k].rate / results[0][k].rate
		}
		slices.Sort(ratios)
		fmt.Printf("%-14s %8d %11.0f %8.0f-%8.0f %6.2f %9v %9v %9v  %-27s %8.2f %8.3f %5.1f+%-4.1f %4.0f+%-4.0f\n", c.name, callers,
			median(rates), rates[0], rates[len(rates)-1], median(ratios),
			medianTime(rounds, 100*time.Nanosecond, func(r result) time.Duration { return r.p50 }),
			medianTime(rounds, 100*time.Nanosecond, func(r result) time.Duration { return r.p99 }),
			medianTime(rounds, 10*time.Nanosecond, result.cpu), shares(rounds),
			median(sorted(rounds, func(r result) float64 { return r.syscalls })),
			median(sorted(rounds, func(r result) float64 { return r.switches })),
			median(sorted(rounds, func(r result) float64 { return r.clientAllocs })),
			median(sorted(rounds, func(r result) float64 { return r.serverAllocs })),
			median(sorted(rounds, func(r result) float64 { return r.clientPeak }))/1e6,
			median(sorted(rounds, func(r result) float64 { return r.serverPeak }))/1e6)
	}
}

// shares formats the user and kernel time of client and server, in microseconds.
func shares(rounds []result) string {
	us := func(time func(result) time.Duration) float64 { return float64(median(sorted(rounds, time))) / 1e3 }
	return fmt.Sprintf("%.2f+%.2f, %.2f+%.2f us",
		us(func(r result) time.Duration { return r.client.user }), us(func(r result) time.Duration { return r.client.system }),
		us(func(r result) time.Duration { return r.server.user }), us(func(r result) time.Duration { return r.server.system }))
}

func sorted[T any, N cmp.Ordered](rounds []T, figure func(T) N) []N {
	figures := make([]N, len(rounds))
	for i, r := range rounds {
		figures[i] = figure(r)
	}
	slices.Sort(figures)
	return figures
}

func median[N cmp.Ordered](sorted []N) N { return sorted[len(sorted)/2] }

func medianTime[T any](rounds []T, precision time.Duration, figure func(T) time.Duration) time.Duration {
	return median(sorted(rounds, figure)).Round(precision)
}
