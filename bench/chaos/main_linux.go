package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"docstore/bench/internal/command"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

func main() {
	command.Main(func(args []string) error { return run(args, os.Stdout) })
}

func run(args []string, out io.Writer) error {
	if process.Role() != "" {
		return serveAsChild()
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	rounds := flags.Int("rounds", 1, "how often each fault is applied, at least 1")
	lasts := flags.Duration("lasts", 3*time.Second, "duration of a fault, and of the observation after it")
	var keeper results.Keeper
	keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 {
		return errors.New("-rounds: at least 1")
	}
	return keeper.Run(fmt.Sprintf("servers=%d callers=%d lasts=%v", serverCount, callers, *lasts), out, func() error {
		if err := try("boxcar", 0, *rounds, *lasts, &keeper, out); err != nil {
			return err
		}
		return try("boxcar-hedged", hedgeAfter, *rounds, *lasts, &keeper, out)
	}, "gap ns", "failed", "calls", "once gap ns", "once failed", "once calls", "wrong")
}

// hedgeAfter is much longer than a call without faults.
const hedgeAfter = 50 * time.Millisecond

// try applies every fault, and prints the audit of the calls.
func try(name string, hedgeAfter time.Duration, rounds int, lasts time.Duration, keeper *results.Keeper, out io.Writer) error {
	t, err := newTrial(hedgeAfter, lasts)
	if err != nil {
		return err
	}
	for round := range rounds {
		for i, f := range faults {
			if _, err := keeper.Measure(name, f.name, round+1, func() (map[string]float64, error) {
				seen, err := t.apply(f, (i+round)%serverCount)
				return seen.figures(), err
			}); err != nil {
				return errors.Join(err, t.close())
			}
		}
	}
	a, err := t.end()
	if _, printed := fmt.Fprintf(out, "%s: %+v\n", name, a); printed != nil {
		err = errors.Join(err, printed)
	}
	if err == nil && !a.faultless() {
		err = fmt.Errorf("%s: results and executions of calls differ", name)
	}
	return err
}

// figures returns the longest time without a successful call, and the calls, of idempotent methods
// and others.
func (r report) figures() map[string]float64 {
	return map[string]float64{
		"gap ns": float64(r.twice.gap), "failed": float64(r.twice.fails), "calls": float64(r.twice.calls),
		"once gap ns": float64(r.once.gap), "once failed": float64(r.once.fails), "once calls": float64(r.once.calls),
		"wrong": float64(r.twice.wrong + r.once.wrong),
	}
}
