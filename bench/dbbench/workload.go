package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// workloads are those of LevelDB's db_bench, by its names. Each returns the
// number of its operations.
var workloads = map[string]func(b *bench, threads int) (ops int, err error){
	"fillrandom":  (*bench).fillRandom,
	"readrandom":  func(b *bench, threads int) (int, error) { return b.read(threads, 0) },
	"readmissing": func(b *bench, threads int) (int, error) { return b.read(threads, 1<<40) },
	"readseq":     func(b *bench, _ int) (int, error) { return b.scan(iterator.first, iterator.next) },
	"readreverse": func(b *bench, _ int) (int, error) { return b.scan(iterator.last, iterator.prev) },
	"seekrandom":  (*bench).seekRandom,
	"ycsbe":       (*bench).ycsbE,

	"readwhilewriting": func(b *bench, threads int) (int, error) {
		return b.whileWriting(func() (int, error) { return b.read(threads, 0) })
	},
	"seekrandomwhilewriting": func(b *bench, threads int) (int, error) {
		return b.whileWriting(func() (int, error) { return b.seekFresh(threads) })
	},
	"ycsbewhilewriting": func(b *bench, threads int) (int, error) {
		return b.whileWriting(func() (int, error) { return b.ycsbE(threads) })
	},
}

func workloadNames() []string {
	var names []string
	for name := range workloads {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bench is one engine under the workloads.
type bench struct {
	settings
	data   data
	engine engine

	writing struct { // by one at a time
		sync.Mutex
		key, value []byte
	}
	wrote     bool          // by the phase, beside what it measures
	inserted  atomic.Uint64 // entries beyond num
	latencies struct {
		sync.Mutex
		histogram
	}
}

// entries is the number of entries that there are.
func (b *bench) entries() int { return b.num + int(b.inserted.Load()) }

// result is one phase of one engine.
type result struct {
	Engine  string  `json:"engine"`
	Phase   string  `json:"phase"`
	Ops     int     `json:"ops"`
	Seconds float64 `json:"seconds"`
	// CPUSeconds is what all threads of the process took of all processors. It
	// varies less than Seconds where the machine is not quiet.
	CPUSeconds float64 `json:"cpu_seconds"`
	// PeakAnonymous is the most anonymous memory of the process, seen every few
	// milliseconds since it began; PeakResident counts mapped pages too.
	PeakAnonymous int64 `json:"peak_anonymous_bytes"`
	PeakResident  int64 `json:"peak_resident_bytes"`
	// ReadBytes and WrittenBytes are what the process had the disk read, and what it
	// handed to the kernel to be written, mapped files too.
	ReadBytes    int64 `json:"read_bytes"`
	WrittenBytes int64 `json:"written_bytes"`
	// UserBytes are those of the keys and values of Ops entries.
	UserBytes int64 `json:"user_bytes"`
	// Amplification is how often the phase's bytes were written to tables, and
	// RuleAmplification how often the rule says, if the engine knows.
	Amplification     float64 `json:"amplification,omitempty"`
	RuleAmplification float64 `json:"rule_amplification,omitempty"`
	// P50, P99 and P999 are of gets, with -histogram.
	P50  time.Duration `json:"p50_ns,omitempty"`
	P99  time.Duration `json:"p99_ns,omitempty"`
	P999 time.Duration `json:"p999_ns,omitempty"`
}

func (r result) rate() float64 { return float64(r.Ops) / r.Seconds }

func (r result) String() string {
	ops := float64(r.Ops)
	s := fmt.Sprintf("%-10s %-22s %10.0f ops/s %8.1f ns/op %8.1f ns/op of processors  anonymous %d MB, resident %d MB",
		r.Engine, r.Phase, r.rate(), 1e9/r.rate(), 1e9*r.CPUSeconds/ops, r.PeakAnonymous>>20, r.PeakResident>>20)
	if r.ReadBytes > 0 {
		s += fmt.Sprintf("  read %.0f bytes/op", float64(r.ReadBytes)/ops)
	}
	if strings.HasPrefix(r.Phase, "fill") {
		s += fmt.Sprintf("  written %.2f times", float64(r.WrittenBytes)/float64(r.UserBytes))
	}
	if r.Amplification > 0 {
		s += fmt.Sprintf("  tables %.2f times, by the rule %.2f", r.Amplification, r.RuleAmplification)
	}
	if r.P50 > 0 {
		s += fmt.Sprintf("  p50 %v p99 %v p99.9 %v", r.P50, r.P99, r.P999)
	}
	return s
}

// run does a phase: a workload's name, and the number of threads behind a colon.
func (b *bench) run(phase string) (result, error) {
	name, threads := phase, b.threads
	if at := strings.IndexByte(phase, ':'); at >= 0 {
		name = phase[:at]
		if _, err := fmt.Sscan(phase[at+1:], &threads); err != nil || threads < 1 {
			return result{}, fmt.Errorf("phase %q: no number of threads", phase)
		}
	}
	workload := workloads[name]
	if workload == nil {
		return result{}, fmt.Errorf("workload %q, want one of %s", name, strings.Join(workloadNames(), ", "))
	}
	cpuBefore, err := cpuTime()
	if err != nil {
		return result{}, err
	}
	b.wrote, b.latencies.histogram = false, histogram{}
	readBefore, writtenBefore := ioBytes("read_bytes:"), ioBytes("write_bytes:")
	start := time.Now()
	ops, err := workload(b, threads)
	end := time.Now()
	if err == nil && name == "fillrandom" {
		end, err = quietSince()
	}
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", phase, err)
	}
	cpu, err := cpuTime()
	r := result{
		Engine: b.engines[0], Phase: phase, Ops: ops,
		Seconds: end.Sub(start).Seconds(), CPUSeconds: (cpu - cpuBefore).Seconds(),
		ReadBytes: ioBytes("read_bytes:") - readBefore, WrittenBytes: ioBytes("write_bytes:") - writtenBefore,
		UserBytes: int64(ops) * int64(b.data.keyBytes+b.data.valueBytes),
	}
	if e, ok := b.engine.(interface{ amplification() (tables, rule float64) }); ok && name == "fillrandom" {
		r.Amplification, r.RuleAmplification = e.amplification()
	}
	if b.histogram {
		h := &b.latencies.histogram
		r.P50, r.P99, r.P999 = h.quantile(0.5), h.quantile(0.99), h.quantile(0.999)
	}
	if err == nil && b.wrote { // the next phase begins where nothing is going on
		if err = b.engine.flush(); err == nil {
			_, err = quietSince()
		}
	}
	return r, err
}

func (b *bench) fillRandom(int) (int, error) {
	var key, value []byte
	for i := range uint64(b.num) {
		key = b.data.key(key, i)
		value = b.data.value(value, key)
		if err := b.engine.set(key, value); err != nil {
			return 0, err
		}
	}
	return b.num, b.engine.flush()
}

// read gets random keys that are there, or, from an offset beyond them on,
// that are not. Of each value the length and the first byte are looked at.
func (b *bench) read(threads int, offset uint64) (int, error) {
	return b.reads * threads, parallel(threads, func(thread int) error {
		random := rand.New(rand.NewPCG(b.data.seed, uint64(thread)))
		var key, value, want []byte
		var latencies *histogram
		if b.histogram {
			latencies = new(histogram)
			defer func() {
				b.latencies.Lock()
				b.latencies.merge(latencies)
				b.latencies.Unlock()
			}()
		}
		for range b.reads {
			key = b.data.key(key, offset+random.Uint64N(uint64(b.num)))
			got, found, err := b.get(latencies, value[:0], key)
			if err != nil {
				return err
			}
			if found != (offset == 0) {
				return fmt.Errorf("key %x: found is %v", key, found)
			}
			if value = got; found {
				if want = b.data.value(want, key); len(value) != len(want) || value[0] != want[0] {
					return fmt.Errorf("key %x: another value", key)
				}
			}
		}
		return nil
	})
}

// get is the engine's, timed if there is where to count it.
func (b *bench) get(latencies *histogram, dst, key []byte) ([]byte, bool, error) {
	if latencies == nil {
		return b.engine.get(dst, key)
	}
	start := time.Now()
	value, found, err := b.engine.get(dst, key)
	latencies.add(time.Since(start))
	return value, found, err
}

func (b *bench) scan(start, step func(iterator) bool) (count int, err error) {
	it, err := b.engine.iterator()
	if err != nil {
		return 0, err
	}
	bytes := 0
	for ok := start(it); ok; ok = step(it) {
		value, err := it.value()
		if err != nil {
			return 0, err
		}
		bytes += len(it.key()) + len(value)
		count++
	}
	if err := it.close(); err != nil {
		return 0, err
	}
	if count != b.entries() || bytes != count*(b.data.keyBytes+b.data.valueBytes) {
		return 0, fmt.Errorf("%d entries of %d bytes, want %d", count, bytes, b.entries())
	}
	return count, nil
}

// seekRandom seeks a random key and reads ten entries from there on.
func (b *bench) seekRandom(threads int) (int, error) {
	const entries = 10
	return b.reads / entries * threads, parallel(threads, func(thread int) error {
		random := rand.New(rand.NewPCG(b.data.seed, uint64(thread)))
		it, err := b.engine.iterator()
		if err != nil {
			return err
		}
		var key []byte
		for range b.reads / entries {
			key = b.data.key(key, 1<<40+random.Uint64N(uint64(b.num)))
			ok := it.seek(key)
			for n := 0; ok && n < entries; n++ {
				if _, err := it.value(); err != nil {
					return err
				}
				ok = it.next()
			}
		}
		return it.close()
	})
}

// check compares what is stored with what should be, entry by entry.
func (b *bench) check() error {
	it, err := b.engine.iterator()
	if err != nil {
		return err
	}
	var scratch, key []byte
	count := 0
	for ok := it.first(); ok; ok = it.next() {
		value, err := it.value()
		if err != nil {
			return err
		}
		if !b.data.right(it.key(), value, scratch) {
			return fmt.Errorf("check: key %x has another value", it.key())
		}
		count++
	}
	if err := it.close(); err != nil {
		return err
	}
	if count != b.entries() {
		return fmt.Errorf("check: %d entries, want %d", count, b.entries())
	}
	for i := uint64(0); i < uint64(b.num); i += 1 + uint64(b.num)/10_000 {
		key = b.data.key(key, i)
		value, found, err := b.engine.get(nil, key)
		if err != nil || !found || !b.data.right(key, value, scratch) {
			return fmt.Errorf("check: key %x: found is %v, error %w", key, found, err)
		}
	}
	return nil
}

func parallel(threads int, work func(thread int) error) error {
	errs := make([]error, threads)
	var running sync.WaitGroup
	for thread := range threads {
		running.Go(func() { errs[thread] = work(thread) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
