// Fleet simulates frontends and up to millions of backends on virtual time with
// boxcarrpc's own ladders, lease seekers, boards, token buckets and subsets, and compares
// them with other policies. A seed determines the output to the byte.
//
//	go run ./fleet -frontends 10000 -backends 1000000 -policy slots -subset rocksteadier -duration 60s -seed 1
//	go run ./fleet -frontends 10000 -backends 1000000 -policy all
//	go run ./fleet -frontends 1000 -backends 100000 -policy all -load 0.3,0.6,0.85 -k 100,400,2000
//	go run ./fleet -frontends 1000 -policy formulaic,viamedia,slots -goal 100ms -shape lognormal,exponential
//	go run ./fleet -frontends 800 -backends 4000 -cells 8 -columns 2 -load 0.6 -scenario cell,neighbour -duration 20s
//	go run ./fleet -truth -load 0.5 -service 1s -warmup 20s -duration 60s -repeats 3
//
// The model: a backend serves one request after another; the network takes 0.5 ms
// each way, a new connection a round trip more; with the document's load a response of 1 MB
// takes 10 ms, and longer on a new connection. 5 % of the frontends have ten times
// the mean rate, 20 % none, the rest the same. A request that is refused or broken
// is tried elsewhere, at most 3 times and within a frontend's retry budget. With
// -silence, -deadline, -hedge and -borrow the slots policy follows the other rules of
// boxcarrpc's Pool, with core.Liveness, the ejection of core.Ladder, and core.Subset.
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"docstore/bench/fleet/policy"
	"docstore/bench/internal/command"
	"docstore/boxcarrpc/subset"
)

func main() {
	command.Main(func(args []string) error { return run(os.Stdout, os.Stderr, args) })
}

// flags are the values of the flags.
type flags struct {
	config                           config
	policies, subsets, loads, scenes []string
	shapes                           []string
	ks                               []int
	truth                            bool
	repeats                          int
	seeds                            []int
	goal                             time.Duration
}

func parse(args []string) (*flags, error) {
	f := new(flags)
	c := &f.config
	set := flag.NewFlagSet("fleet", flag.ContinueOnError)
	set.IntVar(&c.frontends, "frontends", 1000, "how many frontends")
	set.IntVar(&c.backends, "backends", 100_000, "how many backends")
	set.IntVar(&c.cells, "cells", 1, "parts of the fleet, each with as many frontends and backends")
	set.IntVar(&c.columns, "columns", 1, "columns of a cell: its frontends are pools that use one column each")
	command.Numbers(set, &f.ks, "k", "100", 1, 1<<24, "numbers of backends that a frontend may use")
	command.Words(set, &f.policies, "policy", "slots", "policies, or all", append(policy.Names(), "all")...)
	command.Words(set, &f.subsets, "subset", "rocksteadier", "subset algorithms, or all", append(subset.Names(), "all")...)
	command.List(set, &f.loads, "load", "document", "loads: document (100,000 requests/s of 89 ms to a million backends), or a share of the capacity, for example 0.6",
		func(word string) (string, error) { return word, nil })
	command.Words(set, &f.scenes, "scenario", "steady", "scenarios, or all", append(slices.Clone(scenarios), "all")...)
	set.DurationVar(&c.duration, "duration", time.Minute, "virtual time that is measured")
	set.DurationVar(&c.warmup, "warmup", 5*time.Second, "virtual time before")
	command.Numbers(set, &f.seeds, "seed", "1", 0, math.MaxInt, "seeds of everything that is random")
	set.Float64Var(&c.hotShare, "hot", 0.05, "share of frontends that are hot")
	set.Float64Var(&c.hotTimes, "hot-times", 10, "how much hotter they are than the mean")
	set.Float64Var(&c.coldShare, "cold", 0.2, "share of frontends without requests")
	set.DurationVar(&c.service, "service", 0, "mean service time; 0 is 89 ms for the document's load, 50 ms for others")
	set.Float64Var(&c.sigma, "sigma", loadSigma, "of the lognormal service time, with -service; 0 for a constant one")
	set.BoolVar(&c.sharedLink, "shared-link", false, "the responses of a frontend arrive one after another, not at the same time")
	set.DurationVar(&c.deadline, "deadline", 0, "deadline of a request; 0 for none")
	set.DurationVar(&c.hedge, "hedge", 0, "time after which slots send a request to a second backend; 0 for never")
	silence := set.Duration("silence", 0, "SilenceTimeout of slots; 0 for none")
	set.Float64Var(&c.failShare, "fail-share", failShare, "share of the backends that fail or are slow in failures, silent, silent-start and grey")
	set.DurationVar(&c.skew, "skew", 0, "maximum offset of the frontends' clocks, which then also drift")
	set.BoolVar(&c.zoned, "zones", false, "slots prefer the backends of the frontend's zone, one of three")
	set.BoolVar(&c.borrow, "borrow", false, "slots borrow the next subset if theirs is dead or full")
	set.IntVar(&c.board, "board", 0, "slots of a backend; 0 for four times the mean")
	set.IntVar(&c.options.Connections, "conns", 0, "connections of formulaic to each backend, for one request at a time; 0 for no limit")
	set.IntVar(&c.gossipRelays, "relays", 1, "how often a gossip is relayed")
	command.Words(set, &f.shapes, "shape", shapes[0].name, "distributions of the service time, with -service or -goal", shapeNames()...)
	set.DurationVar(&f.goal, "goal", 0, "find the longest mean service time whose p99 meets this goal, with -load document")
	set.BoolVar(&f.truth, "truth", false, "run 100 real clients and servers besides the simulation, in real time")
	set.IntVar(&f.repeats, "repeats", 8, "real runs of each policy, with -truth")
	if err := command.Parse(set, args); err != nil {
		return nil, err
	}
	c.options.SilenceTimeout, c.tokens = int64(*silence), tokenRate
	if f.goal != 0 {
		c.service = max(f.goal, goalStep)
	}
	if f.repeats < 1 {
		return nil, fmt.Errorf("-repeats %d: must be positive", f.repeats)
	}
	if f.truth {
		c.frontends, c.backends, c.size = truthTasks, truthTasks, truthSlots
		c.asBoxcar = true
		f.ks, f.scenes, f.subsets = []int{truthTasks}, []string{"slow"}, []string{"random"}
	}
	return f, nil
}

// orAll replaces the word "all" by all names.
func orAll(words, all []string) []string {
	if slices.Contains(words, "all") {
		return all
	}
	return words
}

// configs returns the runs that the flags select.
func (f *flags) configs() (configs []config, err error) {
	for _, scene := range orAll(f.scenes, scenarios) {
		for _, load := range f.loads {
			for _, k := range f.ks {
				for _, sub := range orAll(f.subsets, subset.Names()) {
					for _, pol := range orAll(f.policies, policy.Names()) {
						c := f.config
						c.scenario, c.load, c.k, c.subset, c.policy = scene, load, k, sub, pol
						if configs, err = f.vary(configs, c); err != nil {
							return nil, err
						}
					}
				}
			}
		}
	}
	return configs, nil
}

// vary appends a run for each shape and seed.
func (f *flags) vary(configs []config, c config) ([]config, error) {
	for _, name := range f.shapes {
		for _, seed := range f.seeds {
			c.shape, c.seed = shapes[slices.Index(shapeNames(), name)], uint64(seed)
			resolved := c
			if err := resolved.resolve(); err != nil {
				return nil, err
			}
			configs = append(configs, resolved)
		}
	}
	return configs, nil
}

func run(out, progress io.Writer, args []string) error {
	f, err := parse(args)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(progress, format, args...) // progress is optional
	}
	configs, err := f.configs()
	if err != nil {
		return err
	}
	if f.truth {
		for _, c := range configs {
			if c.policy != "slots" {
				return fmt.Errorf("-truth -policy %s: a real pool has slots", c.policy)
			}
		}
		return truth(out, say, configs, f.repeats)
	}
	var results []result
	for i, c := range configs {
		simulated := simulate
		if f.goal > 0 {
			simulated = func(c config, progress func(share float64, events uint64)) (result, error) {
				return largest(c, f.goal, progress)
			}
		}
		r, err := simulated(c, func(share float64, events uint64) {
			say("\r%d of %d: %s, k %d, load %s: %3.0f %%, %.1f million events ", i+1, len(configs), c.policy, c.k, c.load, 100*share, float64(events)/1e6)
		})
		if err != nil {
			return err
		}
		say("\r%s\n", r.line())
		results = append(results, r)
	}
	return writeTable(out, results)
}

func simulate(c config, progress func(share float64, events uint64)) (result, error) {
	s, err := newSimulation(c)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	s.run(progress)
	return s.result(time.Since(began)), nil
}
