// Resize is the experiment of figure 5 in Ward, Wankadia and Guliani, "Reinventing
// Backend Subsetting at Google" (2023), with Boxcar's clients and servers: frontends send
// requests while the number of backends changes in steps. It prints the fewest slots that a frontend
// had meanwhile.
//
//	go run ./resize    takes 5 minutes
//
// It runs for every algorithm, with new connections made before old ones are
// closed (the default of a pool) and after. The trials are interleaved over several
// rounds, so that other load on the machine affects all alike.
//
// Servers and clients are in this process, on loopback addresses, with mutual TLS. It requires Linux,
// where all of 127.0.0.0/8 is local.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"docstore/bench/internal/authority"
	"docstore/bench/internal/command"
	"docstore/bench/internal/results"
	"docstore/boxcarrpc/subset"
)

func main() {
	command.Main(func(args []string) error { return run(args, os.Stdout) })
}

// settings are the size of the experiment.
type settings struct {
	frontends, backends, k  int
	deadline, warmUp, every time.Duration
	rounds                  int
	seed                    uint64
	keeper                  results.Keeper
}

// A trial is an algorithm and a way to follow its changes.
type trial struct {
	algorithm  subset.Algorithm
	leaveAfter time.Duration // as in boxcarrpc.PoolOptions
}

func run(args []string, out io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("resize", flag.ContinueOnError)
	flags.IntVar(&s.frontends, "frontends", 40, "number of clients, each with a pool")
	flags.IntVar(&s.backends, "backends", 60, "number of servers at the start")
	flags.IntVar(&s.k, "k", 20, "servers of a subset")
	flags.DurationVar(&s.deadline, "deadline", 250*time.Millisecond, "of a request")
	flags.DurationVar(&s.every, "every", 4*time.Second, "time from change to change")
	flags.DurationVar(&s.warmUp, "warmup", 2*time.Second, "time before the first change")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds over all trials")
	var names []string
	command.Words(flags, &names, "algorithms", "deterministic,rocksteadier", "algorithms", subset.Names()...)
	s.keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if s.frontends < 1 || s.k < 1 || s.backends < s.k || s.backends > maxBackends/2 || s.rounds < 1 || s.every <= 0 {
		return fmt.Errorf("-frontends, -rounds and -every must be positive, -backends from -k to %d", maxBackends/2)
	}
	var trials []trial
	var contestants []string
	for _, name := range names {
		algorithm, err := subset.ByName(name, nil)
		if err != nil {
			return err
		}
		trials = append(trials, trial{algorithm, 0}, trial{algorithm, -1})
		contestants = append(contestants, name+", make before break", name+", break before make")
	}
	runs := 0
	depends := fmt.Sprintf("frontends=%d backends=%d k=%d deadline=%v every=%v", s.frontends, s.backends, s.k, s.deadline, s.every)
	return s.keeper.Run(depends, out, func() error {
		return s.keeper.Rounds(s.rounds, "resize", contestants, func(i int) (map[string]float64, error) {
			s.seed = uint64(runs / len(trials) * s.frontends) // a seed for each round
			runs++
			return trials[i].run(s)
		})
	}, "fewest slots")
}

// notice is the time from removing a task from the set to stopping it.
const notice = time.Second

// sizes are the steps of the article's figure 5, relative to the size at the start.
var sizes = []float64{61.0 / 60, 63.0 / 60, 68.0 / 60, 80.0 / 60, 68.0 / 60, 1}

// run runs a trial and returns the fewest slots of a frontend since the first change.
func (t trial) run(s settings) (_ map[string]float64, err error) {
	a, err := authority.New()
	if err != nil {
		return nil, err
	}
	b := &backends{authority: a, running: map[int]*backend{}}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.start(0, s.backends-1); err != nil {
		return nil, err
	}
	f, err := newFrontends(s, t, a)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.tell(s.backends)
	if err := f.ready(); err != nil {
		return nil, err
	}
	time.Sleep(s.warmUp)
	f.fewest.Store(math.MaxInt64)
	f.calling.Go(f.watchSlots)
	before := s.backends
	for _, size := range sizes {
		after := int(size*float64(s.backends) + 0.5)
		begin := time.Now()
		if err := resize(b, f, before, after); err != nil {
			return nil, fmt.Errorf("%d to %d backends: %w", before, after, err)
		}
		before = after
		time.Sleep(s.every - time.Since(begin)) // a change may also take longer
	}
	return map[string]float64{"fewest slots": float64(f.fewest.Load())}, nil
}

// resize starts tasks and then adds them to the set, or removes tasks from the set and
// stops them later.
func resize(b *backends, f *frontends, before, after int) error {
	if after > before {
		if err := b.start(before, after-1); err != nil {
			return err
		}
		f.tell(after)
		return nil
	}
	f.tell(after)
	time.Sleep(notice)
	return b.stop(after, before-1)
}
