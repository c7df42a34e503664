package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"docstore/bench/internal/histogram"
	"docstore/bench/internal/machine"
	"docstore/bench/internal/process"
)

// A workload is one of LevelDB's db_bench or of YCSB, by its name.
type workload struct {
	// run returns the number of operations.
	run func(b *bench, threads int) (ops int, err error)
	// writes: the measurement includes the merges that the workload causes.
	writes bool
}

var workloads = map[string]workload{
	"fillseq":      {func(b *bench, _ int) (int, error) { return b.fill(b.num, true, b.setOne) }, true},
	"fillrandom":   {func(b *bench, _ int) (int, error) { return b.fill(b.num, false, b.setOne) }, true},
	"fillsync":     {func(b *bench, _ int) (int, error) { return b.fill(max(1, b.num/syncShare), false, b.setSynced) }, true},
	"fillbatch":    {func(b *bench, _ int) (int, error) { return b.fill(b.num, false, b.setInBatches()) }, true},
	"overwrite":    {func(b *bench, _ int) (int, error) { return b.overwrite() }, true},
	"deleterandom": {func(b *bench, _ int) (int, error) { return b.deleteRandom() }, true},
	"open":         {func(b *bench, _ int) (int, error) { return b.reopen() }, false},

	"readrandom":  {func(b *bench, threads int) (int, error) { return b.read(threads, b.anyEntry) }, false},
	"readhot":     {func(b *bench, threads int) (int, error) { return b.read(threads, b.hotEntry) }, false},
	"readmissing": {func(b *bench, threads int) (int, error) { return b.read(threads, b.missingEntry) }, false},
	"readseq":     {func(b *bench, _ int) (int, error) { return b.scan(iterator.First, iterator.Next) }, false},
	"readreverse": {func(b *bench, _ int) (int, error) { return b.scan(iterator.Last, iterator.Prev) }, false},
	"seekrandom":  {(*bench).seekRandom, false},

	"readwhilewriting": {func(b *bench, threads int) (int, error) {
		return b.whileWriting(func() (int, error) { return b.read(threads, b.anyEntry) })
	}, false},
	"readwhilescanning": {func(b *bench, threads int) (int, error) {
		return b.whileScanning(func() (int, error) { return b.read(threads, b.anyEntry) })
	}, false},
	"seekrandomwhilewriting": {func(b *bench, threads int) (int, error) {
		return b.whileWriting(func() (int, error) { return b.seekFresh(threads) })
	}, false},
	"ycsbewhilewriting": {func(b *bench, threads int) (int, error) {
		return b.whileWriting(func() (int, error) { return b.ycsb(threads, ycsbMixes["ycsbe"]) })
	}, false},
}

func init() {
	for name, mix := range ycsbMixes {
		workloads[name] = workload{func(b *bench, threads int) (int, error) { return b.ycsb(threads, mix) }, false}
	}
}

func workloadNames() []string {
	return slices.Sorted(maps.Keys(workloads))
}

// bench is one engine under the workloads.
type bench struct {
	settings
	dir    string
	data   data
	engine engine

	writing struct { // engines accept one writer at a time
		sync.Mutex
		key, value []byte
	}
	wrote    bool          // by the phase, in addition to its operations
	loaded   uint64        // entries of the last fill
	removed  bool          // odd entries are removed
	inserted atomic.Uint64 // entries after those loaded

	clock     clock
	latencies struct {
		sync.Mutex
		histogram.Histogram
	}
}

// entries returns the number of entries.
func (b *bench) entries() int {
	n := b.loaded + b.inserted.Load()
	if b.removed {
		n -= b.loaded / 2
	}
	return int(n)
}

// there reports whether an entry exists.
func (b *bench) there(i uint64) bool {
	return i < b.loaded && (!b.removed || i%2 == 0) || i >= b.loaded && i < b.loaded+b.inserted.Load()
}

// A clock has the counters of the process at the start of a phase.
type clock struct {
	start         time.Time
	cpu           time.Duration
	read, written int64
	others        machine.Watch
}

// begin starts the clock. Workloads start it again after a preparation.
func (b *bench) begin() {
	cpu := process.OwnCPU()
	b.clock = clock{time.Now(), cpu, ownIO("read_bytes"), ownIO("write_bytes"), machine.NewWatch(cpu)}
}

// A phase has the figures of a workload on one engine.
type phase struct {
	Phase   string
	Figures map[string]float64
}

// run runs a phase.
func (b *bench) run(title string) (p phase, err error) {
	name, threads, err := b.parsePhase(title)
	if err != nil {
		return p, err
	}
	w := workloads[name]
	b.wrote, b.latencies.Histogram = false, histogram.Histogram{}
	b.begin()
	ops, err := w.run(b, threads)
	if err != nil {
		return p, fmt.Errorf("%s: %w", title, err)
	}
	end := time.Now()
	if w.writes {
		end = quietSince(b.quiet)
	}
	p = phase{title, b.figures(name, float64(ops), end.Sub(b.clock.start))}
	if b.wrote { // let the merges end before the next phase
		err = b.engine.flush()
		quietSince(b.quiet)
	}
	return p, err
}

// figures returns the figures of a phase that ends now; took excludes the wait for idleness.
func (b *bench) figures(workload string, ops float64, took time.Duration) map[string]float64 {
	cpu := process.OwnCPU()
	f := map[string]float64{
		"ops/s": ops / took.Seconds(), "ns": float64(took.Nanoseconds()) / ops, "cpu ns": float64(cpu-b.clock.cpu) / ops, "seconds": took.Seconds(),
		"others": b.clock.others.Others(cpu), "read bytes": float64(ownIO("read_bytes")-b.clock.read) / ops,
	}
	if strings.HasPrefix(workload, "fill") || workload == "overwrite" {
		f["written bytes"] = float64(ownIO("write_bytes") - b.clock.written)
		f["written times"] = f["written bytes"] / (ops * float64(b.data.keyBytes+b.data.valueBytes))
	}
	if e, ok := b.engine.(interface{ amplification() (tables, rule float64) }); ok && workload == "fillrandom" {
		f["amplification"], f["rule amplification"] = e.amplification()
	}
	if h := &b.latencies.Histogram; b.histogram {
		f["p50 ns"], f["p99 ns"], f["p999 ns"] = float64(h.Quantile(0.5)), float64(h.Quantile(0.99)), float64(h.Quantile(0.999))
	}
	return f
}

func (b *bench) parsePhase(phase string) (name string, threads int, err error) {
	name, threads = phase, 1
	if at := strings.IndexByte(phase, ':'); at >= 0 {
		name = phase[:at]
		if _, err := fmt.Sscan(phase[at+1:], &threads); err != nil || threads < 1 {
			return "", 0, fmt.Errorf("phase %q: invalid number of threads", phase)
		}
	}
	if workloads[name].run == nil {
		return "", 0, fmt.Errorf("workload %q, want one of %s", name, strings.Join(workloadNames(), ", "))
	}
	if b.removed && strings.HasPrefix(name, "ycsb") {
		return "", 0, fmt.Errorf("%s after deleterandom: requires all entries: fill or overwrite first", name)
	}
	return name, threads, nil
}

// fresh empties the store.
func (b *bench) fresh(sequential bool) (err error) {
	if b.engine != nil {
		if err := b.engine.close(); err != nil {
			return err
		}
		b.engine = nil
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	b.data.sequential, b.data.generation = sequential, 0
	b.loaded, b.removed = 0, false
	b.inserted.Store(0)
	return b.open()
}

func (b *bench) open() (err error) {
	b.engine, err = openEngine(b.engines[0], b.dir, b.sizing())
	return err
}

// reopen measures the time from opening the store to the first answer, ten times.
func (b *bench) reopen() (int, error) {
	const times = 10
	var opening time.Duration
	key := b.data.key(nil, 0)
	for range times {
		if err := b.engine.close(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := b.open(); err != nil {
			return 0, err
		}
		if _, found, err := b.engine.get(nil, key); err != nil || found != b.there(0) {
			return 0, fmt.Errorf("the first get: found is %v, error %w", found, err)
		}
		took := time.Since(start)
		b.latencies.Add(took)
		opening += took
	}
	b.clock.start = time.Now().Add(-opening) // closing does not count
	return times, nil
}

// A recorder records the durations of operations with -histogram.
type recorder struct{ *histogram.Histogram }

func (r recorder) begin() (start time.Time) {
	if r.Histogram != nil {
		start = time.Now()
	}
	return start
}

func (r recorder) end(start time.Time) {
	if r.Histogram != nil {
		r.Add(time.Since(start))
	}
}

// record calls work with a recorder whose counts are added to those of the phase.
func (b *bench) record(work func(lat recorder) error) error {
	var lat recorder
	if b.histogram {
		lat.Histogram = new(histogram.Histogram)
		defer func() {
			b.latencies.Lock()
			defer b.latencies.Unlock()
			b.latencies.Merge(lat.Histogram)
		}()
	}
	return work(lat)
}

// parallel runs work in several threads, each with a separate source of random numbers,
// the same for every engine.
func (b *bench) parallel(threads int, work func(random *rand.Rand, lat recorder) error) error {
	errs := make([]error, threads)
	var running sync.WaitGroup
	for thread := range threads {
		running.Go(func() {
			errs[thread] = b.record(func(lat recorder) error {
				return work(rand.New(rand.NewPCG(b.data.seed, uint64(thread))), lat)
			})
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
