// Docbench measures the main job, documents fetched by id, beside what one would use
// instead. Each store runs in processes of its own on this machine, is filled with the
// same documents, and is asked in turns with the others, closed loop, every document
// of a file compared with its line by a sum of 64 bits, of made ones one in 64:
//
//	go run ./docbench -stores docstore,memcached,go-redis,rueidis -callers 1,64 -batch 1,50 debian.ndjson.gz
//	go run ./docbench -made 5000000 -distribution zipfian
//
// The caches have room for everything, which is the best they can do, but with
// -memory_limit: then memcached is a cache before a database that costs nothing, and
// what it has lost is put in again, which no user can have; memcached+pebble shares its
// memory with the store on disk that this comes from. -beside measures ours while it is being updated,
// too, -results keeps the figures in a file, where what is there already is not measured
// again. A store whose server is not installed is left out, and a line says what to
// install. Daemons that run already are asked instead with -servers:
//
//	go run ./docbench -servers 127.0.0.1:7070 -collection debian debian.ndjson.gz
//
// It prints a row for each number of callers, batch size and store: the median of the
// rounds, and the ratio of the first store to it. The figures are those of the machine,
// which the stores share with the callers.
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

// settings is what the flags say.
type settings struct {
	stores     []string
	servers    []string // that run already, instead of stores
	collection string
	callers    []int
	batches    []int
	// distributions and besides are what is measured one after the other and in turns.
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
	servers := flags.String("servers", "", "Boxcar addresses of daemons that run already, separated by commas")
	flags.StringVar(&s.collection, "collection", "debian", "name of their collection")
	callers := flags.String("callers", "1,64", "numbers of concurrent callers")
	batches := flags.String("batch", "1,50", "numbers of documents asked for at once")
	distributions := flags.String("distribution", "uniform", "which documents are asked for: uniform, zipfian (0.99), or both, separated by a comma")
	besideNames := flags.String("beside", besideNothing, "what goes on meanwhile, measured in turns: nothing, updater (at full speed) or arrivals (of sealed segments)")
	flags.Float64Var(&s.arrivalRate, "arrival_rate", 8500, "documents a second in the segments that arrive")
	flags.Int64Var(&s.memory, "memory_limit", 0, "bytes of memory, page cache included, that a cgroup leaves the servers of each store; 0 is no bound")
	flags.DurationVar(&s.warmup, "warmup", 0, "how long each store is asked before it is measured")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "write a profile of the clients to this file")
	flags.StringVar(&s.bin, "bin", "", "directory of docstore-updater and docserviced; the default is to build them")
	flags.StringVar(&s.results, "results", "", "file of results to add to; what it has is not measured again")
	flags.StringVar(&s.table, "table", "", "name of these results in the file")
	flags.IntVar(&s.made, "made", 0, "make so many documents of about 1,000 bytes, instead of a file's")
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
		return s, errors.New("-beside: a queue has one source, so it is updater or arrivals, each in a run of its own")
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
			return nil, fmt.Errorf("%s %q: want some of %s", flagName, list, strings.Join(allowed, ", "))
		}
	}
	return all, nil
}

func numbers(flagName, list string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s %q: want numbers from 1, separated by commas", flagName, list)
		}
		all = append(all, n)
	}
	return all, nil
}
