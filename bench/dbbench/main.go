// Dbbench runs the workloads of LevelDB's db_bench, and YCSB's A to F, on package lsm
// and on other stores, side by side.
//
//	dbbench -engine docstore -num 1000000 -benchmarks fillrandom,readrandom
//	dbbench -engine docstore,pebble,goleveldb,badger,bbolt -rounds 3
//	dbbench -engine docstore,pebble -num 10000000 -reads 300000 -memory_limit 536870912 -bloom_bits 10
//
// The build tag cgo_rivals adds leveldb, rocksdb-universal, kyoto and lmdb; bench/setup installs their
// libraries.
//
// Each engine of each round runs in a separate process and directory, the engines alternate, and the
// medians of the rounds are printed. -results also appends the figures to a file; results that the
// file already has are not measured again.
//
// A phase is a workload with an optional number of threads: readrandom:2. Each fill... starts with an
// empty store; the time of writes includes all merges. Only fillsync syncs its writes; it writes a
// thousandth of the entries. Caches hold everything, unless memory is limited. After the last phase
// all entries are checked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/bench/internal/cgroup"
	"docstore/bench/internal/command"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

func main() { command.MainContext(run) }

// settings are the values of the flags.
type settings struct {
	args            []string
	engines, phases []string
	num, reads      int
	keyBytes        int
	prefixBytes     int // of a key; allButLast for those before its last eight
	valueBytes      int
	memtableBytes   int64
	rounds          int
	seed            uint64
	bloomBits       int
	memoryLimit     int64
	cgroup          string // to join
	histogram       bool
	quiet           time.Duration
	dir             string
	keeper          results.Keeper
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("dbbench", flag.ContinueOnError)
	s.args = args
	engines := flags.String("engine", "docstore", "engines, separated by commas: "+strings.Join(engineNames(), ", "))
	phases := flags.String("benchmarks", "fillrandom,readrandom,readrandom:2,readmissing,readseq,readreverse,seekrandom",
		"workloads in order: "+strings.Join(workloadNames(), ", "))
	flags.IntVar(&s.num, "num", 1_000_000, "entries")
	flags.IntVar(&s.reads, "reads", 0, "reads of each thread; 0 is num")
	flags.IntVar(&s.keyBytes, "key_size", 8, "bytes of a key")
	flags.IntVar(&s.prefixBytes, "prefix_size", allButLast, "leading bytes of a key that are the same in all keys; -1 is all but the last eight")
	flags.IntVar(&s.valueBytes, "value_size", 96, "bytes of a value")
	flags.Int64Var(&s.memtableBytes, "write_buffer_size", 64<<20, "bytes of a memtable")
	flags.IntVar(&s.rounds, "rounds", 1, "rounds; medians are printed")
	flags.Uint64Var(&s.seed, "seed", 1, "of keys and of the order of reads")
	flags.StringVar(&s.dir, "db", "", "directory of the store; the default is a temporary one")
	flags.IntVar(&s.bloomBits, "bloom_bits", 0, "filter bits per key of docstore; 0: default, 2 % false positives; rivals have 10")
	flags.Int64Var(&s.memoryLimit, "memory_limit", 0, "bytes of memory, page cache included, that a cgroup leaves each process; caches get an eighth; 0 is no bound")
	flags.StringVar(&s.cgroup, "cgroup", "", "directory of the cgroup that a child joins")
	flags.BoolVar(&s.histogram, "histogram", false, "measure percentiles of the operations; costs throughput")
	flags.DurationVar(&s.quiet, "quiet", 300*time.Millisecond, "idle time after which the merges of an engine are considered finished")
	s.keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return s, err
	}
	s.engines, s.phases = available(strings.Split(*engines, ",")), strings.Split(*phases, ",")
	if s.reads == 0 {
		s.reads = s.num
	}
	if s.num < 1 || s.num > maxEntries || s.reads < 10 || s.keyBytes < 8 || s.valueBytes < 1 || s.rounds < 1 {
		return s, errors.New("want -num of 1 to 1,000,000,000, -reads of 10, -key_size of 8, -value_size and -rounds of 1")
	}
	if s.prefixBytes < allButLast || s.prefixBytes > s.keyBytes-8 {
		return s, fmt.Errorf("-prefix_size %d: of a -key_size of %d it is at most %d, or -1 for that", s.prefixBytes, s.keyBytes, s.keyBytes-8)
	}
	if len(s.engines) == 0 || s.quiet <= 0 || s.bloomBits < 0 || s.memoryLimit < 0 {
		return s, errors.New("want an -engine that is built in, -quiet of more than 0, -bloom_bits and -memory_limit of 0 or more")
	}
	return s, nil
}

func run(ctx context.Context, args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if process.Role() != "" {
		phases, err := s.measure(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(phases)
	}
	if s.memoryLimit > 0 {
		if s.cgroup, err = cgroup.Make(s.memoryLimit); err != nil {
			fmt.Fprintf(os.Stderr, "dbbench: skipping the run in %d bytes of memory: %v\n", s.memoryLimit, err)
			return nil
		}
		defer func() { err = errors.Join(err, os.Remove(s.cgroup)) }()
	}
	return s.keeper.Run(s.dependsOn(), os.Stdout, func() error { return s.compare(ctx) }, "ops/s", "ns", "cpu ns", "p50 ns", "p99 ns", "p999 ns", "written times", "amplification", "rule amplification", "read bytes",
		"anonymous bytes", "resident bytes", "others")
}

// compare runs each engine of each round in a child process. A round has all phases or none.
func (s *settings) compare(ctx context.Context) error {
	for round := 1; round <= s.rounds; round++ {
		for _, name := range s.engines {
			if slices.ContainsFunc(s.phases, func(phase string) bool { return s.keeper.Has(name, phase, round) }) {
				continue
			}
			fmt.Fprintf(os.Stderr, "dbbench: round %d of %d: %s\n", round, s.rounds, name)
			phases, err := s.startChild(ctx, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			var all []results.Result
			for _, p := range phases {
				all = append(all, s.keeper.Result(name, p.Phase, round, p.Figures))
			}
			if err := s.keeper.Add(all...); err != nil {
				return err
			}
		}
	}
	return nil
}

// startChild measures an engine in a child process, which removes its files when it is interrupted.
func (s *settings) startChild(ctx context.Context, engine string) (phases []phase, err error) {
	self := process.Child("engine", append(slices.Clone(s.args), "-engine", engine, "-cgroup", s.cgroup)...)
	child := process.Command(ctx, self.Path, self.Args[1:]...)
	child.Env, child.Stderr = self.Env, os.Stderr
	out, err := child.Output()
	if err != nil {
		return nil, err
	}
	return phases, json.Unmarshal(out, &phases)
}

// dependsOn returns the settings on which figures depend.
func (s *settings) dependsOn() string {
	text := fmt.Sprintf("num=%d reads=%d key_size=%d value_size=%d write_buffer_size=%d seed=%d",
		s.num, s.reads, s.keyBytes, s.valueBytes, s.memtableBytes, s.seed)
	if s.prefixBytes != allButLast {
		text += fmt.Sprintf(" prefix_size=%d", s.prefixBytes)
	}
	if s.bloomBits > 0 {
		text += fmt.Sprintf(" bloom_bits=%d", s.bloomBits)
	}
	if s.memoryLimit > 0 {
		text += fmt.Sprintf(" memory_limit=%d", s.memoryLimit)
	}
	if s.histogram {
		text += " histogram"
	}
	return text
}

// measure runs the phases on one engine in this process.
func (s settings) measure(ctx context.Context) (phases []phase, err error) {
	dir := s.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "dbbench"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		// A workload cannot be interrupted: remove its files and exit.
		defer context.AfterFunc(ctx, func() {
			_ = os.RemoveAll(dir) // the workload may still write: few files are left
			fmt.Fprintln(os.Stderr, "dbbench: interrupted")
			os.Exit(1)
		})()
	}
	if s.cgroup != "" {
		if err := cgroup.Join(s.cgroup); err != nil {
			return nil, err
		}
	}
	memory := watchMemory()
	b := &bench{settings: s, dir: filepath.Join(dir, s.engines[0]), data: s.stored()}
	err = b.fresh(false)
	defer func() {
		if b.engine != nil {
			err = errors.Join(err, b.engine.close())
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, name := range s.phases {
		p, err := b.run(name)
		if err != nil {
			return nil, err
		}
		p.Figures["anonymous bytes"], p.Figures["resident bytes"] = float64(memory.Load()), float64(ownBytes("VmHWM"))
		phases = append(phases, p)
	}
	return phases, b.check()
}

// allButLast stands for a prefix of all bytes of a key but the last eight.
const allButLast = -1

// stored describes the keys and values.
func (s settings) stored() data {
	d := data{seed: s.seed, keyBytes: s.keyBytes, prefix: s.prefixBytes, valueBytes: s.valueBytes}
	if d.prefix == allButLast {
		d.prefix = s.keyBytes - 8
	}
	return d
}

func (s settings) sizing() sizing {
	dataBytes := int64(s.num) * int64(s.keyBytes+s.valueBytes)
	cacheBytes := max(1<<30, 2*dataBytes)
	if s.memoryLimit > 0 {
		cacheBytes = s.memoryLimit / 8
	}
	return sizing{s.memtableBytes, cacheBytes, dataBytes, s.bloomBits}
}

// maxEntries keeps the arithmetic of overwrite within 64 bits.
const maxEntries = 1_000_000_000
