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
// message. To measure running daemons use -servers:
//
//	go run ./docbench -servers 127.0.0.1:7070 -collection debian debian.ndjson.gz
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
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if isGRPCServer(os.Args) {
		if err := serveGRPC(os.Args); err != nil {
			fmt.Fprintln(os.Stderr, "docbench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "docbench:", err)
		os.Exit(1)
	}
}

// settings are the values of the flags.
type settings struct {
	stores     []string
	servers    []string // that run already, instead of stores
	collection string
	callers    []int
	batches    []int
	// distributions are measured one after the other, background tasks interleaved.
	distributions, besides []string

	arrivalRate float64
	memory      int64
	warmup      time.Duration
	made        int
	duration    time.Duration
	rounds      int
	file        string

	results, table string
	cpuProfile     string
	bin            string // of the commands; empty: they are built
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("docbench", flag.ContinueOnError)
	names := flags.String("stores", "docstore", "stores, separated by commas, the first one compared with the others: "+storeNames()+"; rivals may be set otherwise, as in memcached:threads=4: "+tunableNames())
	servers := flags.String("servers", "", "comma-separated Boxcar addresses of running daemons")
	flags.StringVar(&s.collection, "collection", "debian", "name of their collection")
	callers := flags.String("callers", "1,64", "numbers of concurrent callers")
	batches := flags.String("batch", "1,50", "numbers of documents asked for at once")
	distributions := flags.String("distribution", "uniform", "which documents are asked for: uniform, zipfian (0.99), or both, separated by a comma")
	besideNames := flags.String("beside", besideNothing, "background tasks, interleaved: nothing, updater (at full speed) or arrivals (of sealed segments)")
	flags.Float64Var(&s.arrivalRate, "arrival_rate", 8500, "documents a second in the segments that arrive")
	flags.Int64Var(&s.memory, "memory_limit", 0, "bytes of memory, page cache included, that a cgroup leaves the servers of each store; 0 is no bound")
	flags.DurationVar(&s.warmup, "warmup", 0, "warm-up time of each store")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "write a profile of the clients to this file")
	flags.StringVar(&s.bin, "bin", "", "directory of docstore-updater and docserviced; the default is to build them")
	flags.StringVar(&s.results, "results", "", "file of results to add to; its results are not measured again")
	flags.StringVar(&s.table, "table", "", "name of these results in the file")
	flags.IntVar(&s.made, "made", 0, "number of documents of about 1,000 bytes to generate, instead of a file")
	flags.DurationVar(&s.duration, "duration", 3*time.Second, "length of one round")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds for each row; the median is printed")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.made == 0 && flags.NArg() != 1 {
		return s, fmt.Errorf("want one NDJSON file, or -made; got %d", flags.NArg())
	}
	if s.rounds < 1 || s.made < 0 {
		return s, fmt.Errorf("-rounds %d, -made %d: want at least 1 and 0", s.rounds, s.made)
	}
	if s.distributions, err = wordsOf("-distribution", *distributions, "uniform", "zipfian"); err != nil {
		return s, err
	}
	if s.besides, err = wordsOf("-beside", *besideNames, besides...); err != nil {
		return s, err
	}
	if slices.Contains(s.besides, besideUpdater) && slices.Contains(s.besides, besideArrivals) {
		return s, errors.New("-beside: a queue has one source: measure updater and arrivals in separate runs")
	}
	if s.arrivalRate <= 0 || s.memory < 0 || s.warmup < 0 {
		return s, errors.New("want -arrival_rate of more than 0, -memory_limit and -warmup of 0 or more")
	}
	s.file = flags.Arg(0)
	if *servers != "" {
		s.servers = strings.Split(*servers, ",")
	}
	if s.bin != "" { // a bare name would be looked for elsewhere
		if s.bin, err = filepath.Abs(s.bin); err != nil {
			return s, err
		}
	}
	s.stores = strings.Split(*names, ",")
	for _, name := range s.stores {
		if _, err := newStore(&rig{}, name); err != nil {
			return s, err
		}
		if base, _, _ := strings.Cut(name, ":"); s.memory > 0 && (base == "postgresql" || base == "go-redis" || base == "rueidis") {
			return s, fmt.Errorf("-stores: %s does not keep to -memory_limit; docstore, memcached and Pebble do", name)
		}
	}
	if s.callers, err = numbers("-callers", *callers); err != nil {
		return s, err
	}
	s.batches, err = numbers("-batch", *batches)
	return s, err
}

// wordsOf are those of a flag that are allowed.
func wordsOf(flagName, list string, allowed ...string) ([]string, error) {
	all := strings.Split(list, ",")
	for _, word := range all {
		if !slices.Contains(allowed, word) {
			return nil, fmt.Errorf("%s %q: must be some of %s", flagName, list, strings.Join(allowed, ", "))
		}
	}
	return all, nil
}

func numbers(flagName, list string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s %q: must be comma-separated numbers from 1", flagName, list)
		}
		all = append(all, n)
	}
	return all, nil
}
