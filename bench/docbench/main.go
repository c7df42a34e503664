// Docbench measures fetches of documents by id, from docstore and rivals. Each store runs in separate
// processes on this machine, is filled with the same documents, and is measured in interleaved rounds,
// closed loop. Every document of a file, and one in 64 generated ones, is verified:
//
//	go run ./docbench -stores docstore,memcached,go-redis,rueidis -callers 1,64 -batch 1,50 debian.ndjson.gz
//	go run ./docbench -made 5000000 -distribution zipfian
//
// Caches hold all documents, unless -memory_limit is set: then misses of memcached are refilled from
// the benchmark's memory, an upper bound, and memcached+pebble shares the memory with a store on disk.
// -beside also measures docstore during updates. -results appends the figures to a file; results that
// it already has are not measured again. A store whose server is not installed is skipped with a
// message.
//
// It prints a row for each number of callers, batch size and store: the median of the
// rounds, and the ratio of the first store to it. Stores and callers share the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"docstore/bench/internal/command"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
	"docstore/bench/internal/zipf"
)

func main() {
	if process.Role() == grpcChild {
		command.Main(serveGRPC) // SIGTERM ends it
		return
	}
	command.MainContext(run)
}

// settings are the values of the flags.
type settings struct {
	stores  []string
	callers []int
	batches []int
	// distributions are measured one after the other, background tasks interleaved.
	distributions, besides []string

	arrivalRate float64
	memory      int64
	warmup      time.Duration
	made        int
	duration    time.Duration
	rounds      int
	file        string
	keeper      results.Keeper
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("docbench", flag.ContinueOnError)
	command.Words(flags, &s.stores, "stores", "docstore", "stores, the first one compared with the others", storeNames()...)
	command.Numbers(flags, &s.callers, "callers", "1,64", 1, 1<<20, "numbers of concurrent callers")
	command.Numbers(flags, &s.batches, "batch", "1,50", 1, 1<<20, "numbers of documents asked for at once")
	command.Words(flags, &s.distributions, "distribution", "uniform", "distributions of the requested documents, zipfian with 0.99", "uniform", "zipfian")
	command.Words(flags, &s.besides, "beside", besideNothing, "background tasks, interleaved; the updater at full speed, arrivals of sealed segments", besides...)
	flags.Float64Var(&s.arrivalRate, "arrival_rate", 8500, "documents a second in the segments that arrive")
	flags.Int64Var(&s.memory, "memory_limit", 0, "bytes of memory, page cache included, that a cgroup leaves the servers of each store; 0 is no bound")
	flags.DurationVar(&s.warmup, "warmup", 0, "warm-up time of each store")
	flags.IntVar(&s.made, "made", 0, "number of documents of about 1,000 bytes to generate, instead of a file")
	flags.DurationVar(&s.duration, "duration", 3*time.Second, "length of one round")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds for each row; the median is printed")
	s.keeper.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.made == 0 && flags.NArg() != 1 {
		return s, fmt.Errorf("want one NDJSON file, or -made; got %d", flags.NArg())
	}
	if s.rounds < 1 || s.made < 0 || s.arrivalRate <= 0 || s.memory < 0 || s.warmup < 0 {
		return s, errors.New("want -rounds of 1 or more, -arrival_rate of more than 0, -made, -memory_limit and -warmup of 0 or more")
	}
	if slices.Contains(s.besides, besideUpdater) && slices.Contains(s.besides, besideArrivals) {
		return s, errors.New("-beside: a queue has one source: measure updater and arrivals in separate runs")
	}
	for _, name := range s.stores {
		if s.memory > 0 && !stores[name].bounded {
			return s, fmt.Errorf("-stores: %s does not keep to -memory_limit; docstore, memcached and Pebble do", name)
		}
	}
	s.file = flags.Arg(0)
	return s, nil
}

// phaseLoad is the phase of filling a store.
const phaseLoad = "load"

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	documents := &corpus{made: s.made}
	if s.made == 0 {
		if documents, err = readCorpus(s.file); err != nil {
			return err
		}
	}
	depends := fmt.Sprintf("documents=%d made=%t duration=%v memory_limit=%d arrival_rate=%.0f warmup=%v",
		documents.size(), s.made > 0, s.duration, s.memory, s.arrivalRate, s.warmup)
	return s.keeper.Run(depends, os.Stdout, func() error { return s.measure(ctx, documents) },
		"documents/s", "p50 ns", "p99 ns", "server us", "client us", "misses", "queue bytes/s", "server cpu", "updater cpu",
		"seconds", "append seconds", "first ready seconds", "second ready seconds", "queue bytes", "index bytes", "anonymous bytes", "others")
}

// measure fills the stores and measures them under all loads.
func (s *settings) measure(ctx context.Context, documents *corpus) (err error) {
	loads := s.loads(documents)
	if s.complete(loads) {
		return nil // all has been measured before
	}
	dir, err := os.MkdirTemp("", "docbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &rig{dir: dir, memory: s.memory}
	defer func() { err = errors.Join(err, r.stop()) }()
	contestants, err := s.fill(ctx, r, documents)
	defer func() {
		for _, c := range contestants {
			err = errors.Join(err, c.store.stop())
		}
	}()
	if err != nil {
		return err
	}
	for _, l := range loads {
		if err := s.row(ctx, l, contestants); err != nil {
			return err
		}
	}
	return nil
}

// loads returns the loads to measure, in order.
func (s *settings) loads(documents *corpus) (all []load) {
	for _, distribution := range s.distributions {
		l := load{corpus: documents, distribution: distribution, duration: s.duration}
		if distribution == "zipfian" {
			l.zipf = zipf.New(documents.size())
		}
		for _, l.callers = range s.callers {
			for _, l.batch = range s.batches {
				all = append(all, l)
			}
		}
	}
	return all
}

// complete reports whether all results exist. A store that was skipped is tried again.
func (s *settings) complete(loads []load) bool {
	for _, l := range loads {
		for _, name := range s.stores {
			for _, what := range s.besidesOf(name) {
				if !s.keeper.Has(name, l.phase(what), s.rounds) {
					return false
				}
			}
		}
	}
	return true
}

// A contestant is a filled store, and the client of the current load.
type contestant struct {
	name   string
	store  store
	client client
}

// fill starts and fills the stores.
func (s *settings) fill(ctx context.Context, r *rig, documents *corpus) (contestants []*contestant, err error) {
	for _, name := range s.stores {
		c := &contestant{name: name, store: stores[name].open(r, name)}
		fmt.Fprintf(os.Stderr, "docbench: filling %s\n", name)
		started := time.Now()
		f, err := c.store.load(ctx, documents)
		if missing := (missingError{}); errors.As(err, &missing) {
			fmt.Printf("# %s is skipped: %v\n", name, missing)
			continue
		}
		contestants = append(contestants, c)
		if err != nil {
			return contestants, fmt.Errorf("%s: %w", name, err)
		}
		if f == nil {
			f = figures{}
		}
		f["seconds"], f["documents"], f["document bytes"] = time.Since(started).Seconds(), float64(documents.size()), documents.bytes()
		f["anonymous bytes"] = float64(process.AnonymousBytes(c.store.processes()))
		if _, err := s.keeper.Measure(name, phaseLoad, 1, func() (figures, error) { return f, nil }); err != nil {
			return contestants, err
		}
	}
	if len(contestants) == 0 {
		return nil, errors.New("none of the stores is installed")
	}
	return contestants, nil
}

// besidesOf returns the background tasks of a store.
func (s *settings) besidesOf(name string) []string {
	if strings.HasPrefix(name, "docstore") {
		return s.besides
	}
	return []string{besideNothing}
}

// warmupSeed differs from those of the rounds, so that the warm-up does not cache their documents.
const warmupSeed = 1 << 32

// row measures all stores under a load in interleaved rounds.
func (s *settings) row(ctx context.Context, l load, contestants []*contestant) (err error) {
	for _, c := range contestants {
		if c.client, err = c.store.client(l.callers); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { err = errors.Join(err, c.client.close()) }()
		if s.warmup > 0 {
			warm := l
			warm.duration, warm.seed = s.warmup, warmupSeed
			if _, err := warm.measure(c.client, c.store.processes()); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	for round := range s.rounds {
		l.seed = uint64(round)
		for _, c := range contestants {
			for _, what := range s.besidesOf(c.name) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if _, err := s.keeper.Measure(c.name, l.phase(what), round+1, func() (figures, error) { return s.measureBeside(ctx, &l, c, what) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
