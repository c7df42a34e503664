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
// One engine with one round runs in this process. Otherwise each engine of each round runs in a
// separate process and directory, the engines alternate, and the table has the median of the rounds
// for each phase and its ratio to the first engine's best rival. -results also appends them to a
// file; results that the file already has are not measured again.
//
// A phase is a workload with an optional number of threads: readrandom:2. Each fill... starts with an
// empty store; the time of writes includes all merges. Writes are synced only with -sync and by
// fillsync, which writes a thousandth of the entries. Caches hold everything, unless memory is
// limited. After the last phase all entries are checked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"docstore/bench/internal/cgroup"
	"docstore/bench/internal/machine"
	"docstore/lsm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbbench:", err)
		os.Exit(1)
	}
}

// settings are the values of the flags.
type settings struct {
	engines, phases []string
	num, reads      int
	keyBytes        int
	prefixBytes     int // of a key; allButLast for those before its last eight
	valueBytes      int
	memtableBytes   int64
	threads, rounds int
	seed            uint64
	writeRate       int
	bloomBits       int
	mergeRule       string
	memoryLimit     int64
	cgroup          string // to join
	histogram       bool
	sync            bool
	quiet           time.Duration
	dir             string
	existing        bool
	json, goBench   bool
	results, table  string
	cpuProfile      string
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if s.memoryLimit > 0 && s.cgroup == "" {
		if s.cgroup, err = cgroup.Make(s.memoryLimit); err != nil {
			fmt.Fprintf(os.Stderr, "dbbench: skipping the run in %d bytes of memory: %v\n", s.memoryLimit, err)
			return nil
		}
		return errors.Join(compare(ctx, s), os.Remove(s.cgroup))
	}
	if len(s.engines) > 1 || s.rounds > 1 || s.results != "" {
		return compare(ctx, s)
	}
	results, err := s.measure(ctx)
	if err != nil {
		return err
	}
	if s.json {
		return json.NewEncoder(os.Stdout).Encode(results)
	}
	s.printHead()
	for _, r := range results {
		s.print(r)
	}
	return nil
}

// printHead prints the conditions of the figures.
func (s settings) printHead() {
	comment := "#"
	if s.goBench {
		comment = "environment:" // a configuration line of benchstat's
	}
	fmt.Println(comment, environment())
	for _, warning := range machine.BuildWarnings() {
		fmt.Println(comment, "WARNING:", warning)
	}
}

func (s settings) print(r result) {
	if s.goBench {
		fmt.Println(r.goBenchmark())
		return
	}
	fmt.Println(r)
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("dbbench", flag.ExitOnError)
	engines := flags.String("engine", "docstore", "engines, separated by commas: "+strings.Join(engineNames(), ", "))
	phases := flags.String("benchmarks", "fillrandom,readrandom,readrandom:2,readmissing,readseq,readreverse,seekrandom",
		"workloads in order: "+strings.Join(workloadNames(), ", "))
	flags.IntVar(&s.num, "num", 1_000_000, "entries")
	flags.IntVar(&s.reads, "reads", 0, "reads of each thread; 0 is num")
	flags.IntVar(&s.keyBytes, "key_size", 8, "bytes of a key")
	flags.IntVar(&s.prefixBytes, "prefix_size", allButLast, "leading bytes of a key that are the same in all keys; -1 is all but the last eight")
	flags.IntVar(&s.valueBytes, "value_size", 96, "bytes of a value")
	flags.Int64Var(&s.memtableBytes, "write_buffer_size", 64<<20, "bytes of a memtable")
	flags.IntVar(&s.threads, "threads", 1, "default number of reading threads of a phase")
	flags.IntVar(&s.rounds, "rounds", 1, "rounds; medians are printed")
	flags.Uint64Var(&s.seed, "seed", 1, "of keys and of the order of reads")
	flags.StringVar(&s.dir, "db", "", "directory of the store; the default is a temporary one")
	flags.BoolVar(&s.existing, "use_existing_db", false, "read what an earlier run with the same num, sizes and seed left in -db")
	flags.IntVar(&s.writeRate, "benchmark_write_rate_limit", 50_000, "entries per second of the writer of ...whilewriting")
	flags.IntVar(&s.bloomBits, "bloom_bits", 0, "filter bits per key of docstore; 0: default, 2 % false positives; rivals have 10")
	flags.StringVar(&s.mergeRule, "merge_rule", "tiered", "when docstore merges tables: tiered, always or never")
	flags.Int64Var(&s.memoryLimit, "memory_limit", 0, "bytes of memory, page cache included, that a cgroup leaves each process; caches get an eighth; 0 is no bound")
	flags.StringVar(&s.cgroup, "cgroup", "", "directory of a cgroup to join, as -memory_limit makes one for the processes it starts")
	flags.BoolVar(&s.histogram, "histogram", false, "print percentiles of the operations; costs throughput")
	flags.DurationVar(&s.quiet, "quiet", 300*time.Millisecond, "idle time after which the merges of an engine are considered finished")
	flags.BoolVar(&s.sync, "sync", false, "sync each write")
	flags.BoolVar(&s.json, "json", false, "print results as JSON")
	flags.BoolVar(&s.goBench, "gobench", false, "print results as go test -bench does, for benchstat")
	flags.StringVar(&s.results, "results", "", "file of results to add to; its results are not measured again")
	flags.StringVar(&s.table, "table", "", "name of these results in the file")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "write a profile of one engine to this file")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.engines, s.phases = available(strings.Split(*engines, ",")), strings.Split(*phases, ",")
	if s.reads == 0 {
		s.reads = s.num
	}
	if s.num < 1 || s.num > maxEntries || s.reads < 10 || s.keyBytes < 8 || s.valueBytes < 1 || s.threads < 1 || s.rounds < 1 {
		return s, errors.New("want -num of 1 to 1,000,000,000, -reads of 10, -key_size of 8, -value_size, -threads and -rounds of 1")
	}
	if s.prefixBytes < allButLast || s.prefixBytes > s.keyBytes-8 {
		return s, fmt.Errorf("-prefix_size %d: of a -key_size of %d it is at most %d, or -1 for that", s.prefixBytes, s.keyBytes, s.keyBytes-8)
	}
	if len(s.engines) == 0 || s.writeRate < 1 || s.quiet <= 0 || s.bloomBits < 0 || s.memoryLimit < 0 {
		return s, errors.New("want an -engine that is built in, -quiet of more than 0, -benchmark_write_rate_limit of 1 or more, -bloom_bits and -memory_limit of 0")
	}
	if _, ok := mergeRules[s.mergeRule]; !ok {
		return s, fmt.Errorf("-merge_rule %q, want tiered, always or never", s.mergeRule)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if s.existing && s.dir == "" {
		return s, errors.New("-use_existing_db needs -db")
	}
	return s, nil
}

// measure runs the phases on the one engine, in this process.
func (s settings) measure(ctx context.Context) (results []result, err error) {
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
	if s.existing {
		b.loaded, err = uint64(s.num), b.open()
	} else {
		err = b.fresh(false)
	}
	defer func() {
		if b.engine != nil {
			err = errors.Join(err, b.engine.close())
		}
	}()
	if err != nil {
		return nil, err
	}
	if s.cpuProfile != "" {
		file, err := os.Create(s.cpuProfile)
		if err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	for _, phase := range s.phases {
		r, err := b.run(phase)
		if errors.Is(err, errNotOffered) {
			fmt.Fprintf(os.Stderr, "dbbench: skipping %s of %s: %v\n", phase, s.engines[0], errNotOffered)
			continue
		}
		if err != nil {
			return nil, err
		}
		r.PeakAnonymous, r.PeakResident = memory.peak.Load(), statusBytes("VmHWM:")
		results = append(results, r)
	}
	pprof.StopCPUProfile()
	return results, b.check()
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
	return sizing{s.memtableBytes, cacheBytes, dataBytes, s.bloomBits, mergeRules[s.mergeRule]}
}

// maxEntries keeps the arithmetic of overwrite within 64 bits.
const maxEntries = 1_000_000_000

var mergeRules = map[string]lsm.MergeRule{"tiered": lsm.SizeTiered, "always": lsm.MergeAlways, "never": lsm.MergeNever}
