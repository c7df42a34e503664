package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
	"docstore/bench/internal/zipf"
)

// contestant is a store that was loaded, and the client for the row.
type contestant struct {
	name   string
	store  store
	client client
	rounds map[string][]figures // by background task
}

// phaseLoad is the phase of filling a store.
const phaseLoad = "load"

func run(ctx context.Context, args []string) (err error) {
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
	keeper, err := results.NewKeeper("docbench", s.table, s.dependsOn(documents), s.results)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	if s.complete(keeper) {
		fmt.Println("# all of it has been measured before")
		return nil
	}
	dir, err := os.MkdirTemp("", "docbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &rig{dir: dir, bin: s.bin, memory: s.memory}
	defer func() { err = errors.Join(err, r.stop()) }()
	if s.cpuProfile != "" {
		file, err := os.Create(s.cpuProfile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	contestants, err := s.load(ctx, r, documents, keeper)
	defer func() {
		for _, c := range contestants {
			err = errors.Join(err, c.store.stop())
		}
	}()
	if err != nil {
		return err
	}
	return s.measureAll(ctx, documents, contestants, keeper)
}

// dependsOn returns the settings on which figures depend.
func (s *settings) dependsOn(documents *corpus) string {
	return fmt.Sprintf("documents=%d made=%t duration=%v memory_limit=%d arrival_rate=%.0f warmup=%v",
		documents.size(), s.made > 0, s.duration, s.memory, s.arrivalRate, s.warmup)
}

// complete reports whether the keeper has all results. A store that was skipped is tried again.
func (s *settings) complete(keeper *results.Keeper) bool {
	l := &load{}
	for _, distribution := range s.distributions {
		if distribution == "zipfian" {
			l.zipf = &zipf.Zipf{}
		}
		for _, l.callers = range s.callers {
			for _, l.batch = range s.batches {
				for _, name := range s.stores {
					for _, what := range s.besidesOf(name) {
						if !keeper.Has(name, phaseBeside(l, what), s.rounds) {
							return false
						}
					}
				}
			}
		}
	}
	return true
}

// load starts and fills the stores.
func (s *settings) load(ctx context.Context, r *rig, documents *corpus, keeper *results.Keeper) (contestants []*contestant, err error) {
	if s.servers != nil {
		return []*contestant{{name: "docstore", store: &runningStore{s.servers, s.collection}}}, nil
	}
	for _, name := range s.stores {
		made, err := newStore(r, name)
		if err != nil {
			return contestants, err
		}
		c := &contestant{name: name, store: made}
		started := time.Now()
		told, err := c.store.load(ctx, documents)
		if missing := (missingError{}); errors.As(err, &missing) {
			fmt.Printf("# %s is skipped: %v\n", name, missing)
			continue
		}
		contestants = append(contestants, c)
		if err != nil {
			return contestants, fmt.Errorf("%s: %w", name, err)
		}
		all := figures{"seconds": time.Since(started).Seconds(), "documents": float64(documents.size()), "document bytes": documents.bytes()}
		for name, figure := range told {
			all[name] = figure
		}
		all["anonymous bytes"] = float64(process.AnonymousBytes(c.store.processes()))
		printLoad(name, all)
		if !keeper.Has(name, phaseLoad, 1) {
			if err := keeper.Add(name, phaseLoad, 1, all); err != nil {
				return contestants, err
			}
		}
	}
	if len(contestants) == 0 {
		return nil, errors.New("none of the stores is installed")
	}
	return contestants, nil
}

func printLoad(name string, f figures) {
	fmt.Printf("# %s: %.0f documents loaded in %.1f s, %.0f MB anonymous\n", name, f["documents"], f["seconds"], f["anonymous bytes"]/1e6)
	if appended := f["append seconds"]; appended > 0 {
		fmt.Printf("# %s: appended %.0f documents/s, %.0f MB; indexed and ready %.2f s after the first start, index %.0f MB; ready %.2f s after the second\n",
			name, f["documents"]/appended, f["queue bytes"]/1e6, f["first ready seconds"], f["index bytes"]/1e6, f["second ready seconds"])
	}
}

// measureAll measures row by row.
func (s *settings) measureAll(ctx context.Context, documents *corpus, contestants []*contestant, keeper *results.Keeper) error {
	fmt.Printf("# %s, %s, commit %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), machine.Name(), machine.Commit())
	for _, warning := range machine.BuildWarnings() {
		fmt.Println("# WARNING:", warning)
	}
	fmt.Printf("%-8s %-6s %-8s %-14s %-9s %12s %10s %10s %14s %14s %7s\n",
		"callers", "batch", "which", "store", "beside", "documents/s", "p50", "p99", "server us/doc", "client us/doc", "ratio")
	l := load{corpus: documents, duration: s.duration}
	for _, distribution := range s.distributions {
		if l.zipf = nil; distribution == "zipfian" {
			l.zipf = zipf.New(documents.size())
		}
		for _, l.callers = range s.callers {
			for _, l.batch = range s.batches {
				if err := s.row(ctx, &l, contestants, keeper); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range contestants {
		if p := c.store.processes(); len(p) > 0 {
			fmt.Printf("# %s: %d MB anonymous\n", c.name, process.AnonymousBytes(p)>>20)
		}
	}
	return nil
}

// besidesOf returns the background tasks of a store: only docstore has an updater.
func (s *settings) besidesOf(name string) []string {
	switch name {
	case "docstore", "docstore-plain", "docstore-none", "docstore-zstd":
		return s.besides
	}
	return []string{besideNothing}
}

func phaseBeside(l *load, what string) string {
	if what == besideNothing {
		return l.phase()
	}
	return l.phase() + ", beside " + what
}

// warmupSeed differs from those of the rounds, so that the warm-up does not cache their documents.
const warmupSeed = 1 << 32

// row measures all stores in interleaved rounds.
func (s *settings) row(ctx context.Context, l *load, contestants []*contestant, keeper *results.Keeper) (err error) {
	for _, c := range contestants {
		c.rounds = map[string][]figures{}
		if c.client, err = c.store.client(l.callers); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { err = errors.Join(err, c.client.close()) }()
		if s.warmup > 0 {
			warm := *l
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
				f, err := keeper.Measure(c.name, phaseBeside(l, what), round+1, func() (figures, error) { return s.measureBeside(ctx, l, c, what) })
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				c.rounds[what] = append(c.rounds[what], f)
			}
		}
	}
	first := middle(contestants[0].rounds[s.besides[0]])["documents/s"]
	for _, c := range contestants {
		for _, what := range s.besidesOf(c.name) {
			printRow(l, c.name, what, middle(c.rounds[what]), first)
		}
	}
	return nil
}

func printRow(l *load, name, what string, f figures, first float64) {
	distribution := "uniform"
	if l.zipf != nil {
		distribution = "zipfian"
	}
	took := func(name string) time.Duration { return time.Duration(f[name]).Round(time.Microsecond) }
	fmt.Printf("%-8d %-6d %-8s %-14s %-9s %12.0f %10v %10v %14.2f %14.2f %7.2f", l.callers, l.batch, distribution, name, what,
		f["documents/s"], took("p50 ns"), took("p99 ns"), f["server us"], f["client us"], first/f["documents/s"])
	if f["misses"] > 0 {
		fmt.Printf("   %.1f %% were missing", 100*f["misses"])
	}
	if what != besideNothing {
		fmt.Printf("   queue grows %.1f MB/s; processors: daemon %.2f, updater %.2f", f["queue bytes/s"]/1e6, f["server cpu"], f["updater cpu"])
	}
	for _, warning := range machine.BusyWarnings(f["others"]) {
		fmt.Print("   WARNING: ", warning)
	}
	fmt.Println()
}

// middle returns the median of each figure.
func middle(rounds []figures) figures {
	all := map[string][]float64{}
	for _, f := range rounds {
		for name, figure := range f {
			all[name] = append(all[name], figure)
		}
	}
	median := figures{}
	for name, numbers := range all {
		median[name] = results.SpreadOf(numbers).Median
	}
	return median
}
