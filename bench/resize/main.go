package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"docstore/bench/internal/command"
	"docstore/bench/internal/results"
	"docstore/boxcarrpc/subset"
)

func main() {
	command.Main(func(args []string) error { return run(args, os.Stdout) })
}

// settings are the size of the experiment.
type settings struct {
	frontends, backends, k int
	deadline               time.Duration // of a request
	warmUp, every, settle  time.Duration
	rounds                 int
	seed                   uint64
	keeper                 results.Keeper
}

// A trial is an algorithm and a way to follow its changes.
type trial struct {
	algorithm  subset.Algorithm
	leaveAfter time.Duration // as in boxcarrpc.PoolOptions
}

func (t trial) name() string {
	if t.leaveAfter < 0 {
		return t.algorithm.Name() + ", break before make"
	}
	return t.algorithm.Name() + ", make before break"
}

func run(args []string, out io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("resize", flag.ContinueOnError)
	flags.IntVar(&s.frontends, "frontends", 40, "number of clients, each with a pool")
	flags.IntVar(&s.backends, "backends", 60, "number of servers at the start")
	flags.IntVar(&s.k, "k", 20, "servers of a subset")
	flags.DurationVar(&s.deadline, "deadline", 250*time.Millisecond, "of a request")
	flags.DurationVar(&s.every, "every", 4*time.Second, "time from change to change")
	flags.DurationVar(&s.settle, "settle", 3*time.Second, "part of -every that counts as the change")
	flags.DurationVar(&s.warmUp, "warmup", 2*time.Second, "time before the first change")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds over all trials")
	var names []string
	command.Words(flags, &names, "algorithms", "deterministic,rocksteadier", "algorithms", subset.Names()...)
	s.keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if s.frontends < 1 || s.k < 1 || s.backends < s.k || s.backends > maxBackends/2 || s.rounds < 1 || s.settle <= 0 || s.every <= s.settle {
		return fmt.Errorf("-frontends and -rounds must be positive, -backends from -k to %d, and -every longer than -settle", maxBackends/2)
	}
	trials, err := trialsOf(names)
	if err != nil {
		return err
	}
	depends := fmt.Sprintf("frontends=%d backends=%d k=%d deadline=%v every=%v settle=%v",
		s.frontends, s.backends, s.k, s.deadline, s.every, s.settle)
	var contestants []string
	for _, t := range trials {
		contestants = append(contestants, t.name())
	}
	runs := 0
	return s.keeper.Run(depends, out, func() error {
		return s.keeper.Rounds(s.rounds, "resize", contestants, func(i int) (map[string]float64, error) {
			s.seed = uint64(runs / len(trials) * s.frontends) // a seed for each round
			runs++
			return trials[i].run(s)
		})
	}, printed...)
}

func trialsOf(names []string) (list []trial, err error) {
	for _, name := range names {
		algorithm, err := subset.ByName(name, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, trial{algorithm, 0}, trial{algorithm, -1})
	}
	return list, nil
}
