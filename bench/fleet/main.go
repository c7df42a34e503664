// Fleet simulates frontends and up to millions of backends on virtual time with
// boxcarrpc's own ladders, lease seekers, boards, token buckets and subsets, and compares
// them with other policies. A seed determines the output to the byte.
//
//	go run ./fleet -frontends 10000 -backends 1000000 -policy slots -subset rocksteadier -duration 60s -seed 1
//	go run ./fleet -frontends 10000 -backends 1000000 -policy all
//	go run ./fleet -frontends 1000 -backends 100000 -policy all -load 0.3,0.6,0.85 -k 100,400,2000 -picture out.png
//	go run ./fleet -scenario small -policy all
//	go run ./fleet -truth -policy slots,slots+load -load 0.5 -duration 10s
//
// The model: a backend serves one request after another; the network takes 0.5 ms
// each way, a new connection a round trip more. 5 % of the frontends have ten times
// the mean rate, 20 % none, the rest the same. A request that is refused or broken
// is tried elsewhere, at most 3 times and within a frontend's retry budget.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

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
	ks                               []int
	picture                          string
	truth, quiet                     bool
	repeats                          int
}

func parse(args []string) (*flags, error) {
	f := new(flags)
	c := &f.config
	set := flag.NewFlagSet("fleet", flag.ContinueOnError)
	set.IntVar(&c.frontends, "frontends", 1000, "how many frontends")
	set.IntVar(&c.backends, "backends", 100_000, "how many backends")
	command.Numbers(set, &f.ks, "k", "100", 1, 1<<24, "numbers of backends that a frontend may use")
	set.IntVar(&c.size, "slots", 0, "slots of a frontend; 0 is peak rate x p99 x 1.5, at least k")
	command.Words(set, &f.policies, "policy", "slots", "policies, or all", append(policyNames(), "all")...)
	command.Words(set, &f.subsets, "subset", "rocksteadier", "subset algorithms, or all", append(subset.Names(), "all")...)
	command.List(set, &f.loads, "load", "document", "loads: document (100,000 requests/s of 89 ms to a million backends), or a share of the capacity, for example 0.6",
		func(word string) (string, error) { return word, nil })
	command.Words(set, &f.scenes, "scenario", "steady", "scenarios, or all", append(slices.Clone(scenarios), "all")...)
	set.DurationVar(&c.duration, "duration", time.Minute, "virtual time that is measured")
	set.DurationVar(&c.warmup, "warmup", 5*time.Second, "virtual time before")
	set.Uint64Var(&c.seed, "seed", 1, "of everything that is random")
	set.Float64Var(&c.hotShare, "hot", 0.05, "share of frontends that are hot")
	set.Float64Var(&c.hotTimes, "hot-times", 10, "how much hotter they are than the mean")
	set.Float64Var(&c.coldShare, "cold", 0.2, "share of frontends without requests")
	set.DurationVar(&c.service, "service", 0, "mean service time; 0 is 89 ms for the document's load, 50 ms for others")
	set.Float64Var(&c.sigma, "sigma", loadSigma, "of the lognormal service time, with -service; 0 for a constant one")
	set.IntVar(&c.retries, "retries", 3, "attempts after the first, at most 4")
	set.StringVar(&f.picture, "picture", "", "draw the results to this PNG file")
	set.BoolVar(&f.truth, "truth", false, "run 50 real clients and 50 real servers beside the simulation, in real time")
	set.IntVar(&f.repeats, "repeats", 8, "real runs of each policy, with -truth")
	set.BoolVar(&f.quiet, "quiet", false, "print no progress")
	if err := command.Parse(set, args); err != nil {
		return nil, err
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
					for _, pol := range orAll(f.policies, policyNames()) {
						c := f.config
						c.scenario, c.load, c.k, c.subset, c.policy = scene, load, k, sub, pol
						if err := c.resolve(); err != nil {
							return nil, err
						}
						configs = append(configs, c)
					}
				}
			}
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
		if !f.quiet {
			_, _ = fmt.Fprintf(progress, format, args...) // progress is optional
		}
	}
	configs, err := f.configs()
	if err != nil {
		return err
	}
	if f.truth {
		for _, c := range configs {
			if !strings.HasPrefix(c.policy, "slots") {
				return fmt.Errorf("-truth -policy %s: a real pool has slots and %s only", c.policy, slotsLoad)
			}
		}
		return truth(out, say, configs, f.repeats)
	}
	var results []result
	for i, c := range configs {
		r, err := simulate(c, func(share float64, events uint64) {
			say("\r%d of %d: %s, k %d, load %s: %3.0f %%, %.1f million events ", i+1, len(configs), c.policy, c.k, c.load, 100*share, float64(events)/1e6)
		})
		if err != nil {
			return err
		}
		say("\r%s\n", r.line())
		results = append(results, r)
	}
	if err := writeTable(out, results); err != nil {
		return err
	}
	if f.picture != "" {
		return create(f.picture, func(w io.Writer) error { return drawPicture(w, results) })
	}
	return nil
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

// create writes a file.
func create(path string, write func(w io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close() // err is the cause
		return fmt.Errorf("%s: %w", path, err)
	}
	return file.Close()
}
