// Docbench measures the main job, documents fetched by id, beside what one would use
// instead. Each store runs in processes of its own on this machine, is filled with the
// same documents, and is asked in turns with the others, closed loop, every document
// of a file compared with its line:
//
//	go run ./docbench -stores docstore,memcached,go-redis,rueidis -callers 1,64 -batch 1,50 debian.ndjson.gz
//	go run ./docbench -made 5000000 -distribution zipfian
//
// The caches have room for everything, which is the best they can do. A store whose
// server is not installed is left out, and a line says what to install. Daemons that run
// already are asked instead with -servers:
//
//	go run ./docbench -servers 127.0.0.1:7070 -collection debian debian.ndjson.gz
//
// It prints a row for each number of callers, batch size and store: the median of the
// rounds, and the ratio of the first store to it. The figures are those of the machine,
// which the stores share with the callers.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"docstore/bench/internal/zipf"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == grpcChild {
		if err := serveGRPC(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "docbench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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
	zipfian    bool
	made       int
	duration   time.Duration
	rounds     int
	file       string
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("docbench", flag.ContinueOnError)
	names := flags.String("stores", "docstore", "stores, separated by commas, the first one compared with the others: "+storeNames())
	servers := flags.String("servers", "", "Boxcar addresses of daemons that run already, separated by commas")
	flags.StringVar(&s.collection, "collection", "debian", "name of their collection")
	callers := flags.String("callers", "1,64", "numbers of concurrent callers")
	batches := flags.String("batch", "1,50", "numbers of documents asked for at once")
	distribution := flags.String("distribution", "uniform", "which documents are asked for: uniform or zipfian (0.99)")
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
	switch *distribution {
	case "uniform":
	case "zipfian":
		s.zipfian = true
	default:
		return s, fmt.Errorf("-distribution %s: want uniform or zipfian", *distribution)
	}
	s.file = flags.Arg(0)
	if *servers != "" {
		s.servers = strings.Split(*servers, ",")
	}
	s.stores = strings.Split(*names, ",")
	for _, name := range s.stores {
		if stores[name] == nil {
			return s, fmt.Errorf("-stores: there is no %q; there are %s", name, storeNames())
		}
	}
	if s.callers, err = numbers("-callers", *callers); err != nil {
		return s, err
	}
	s.batches, err = numbers("-batch", *batches)
	return s, err
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

// contestant is a store that was loaded, and the client for the row.
type contestant struct {
	name    string
	store   store
	client  client
	results []result
}

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
	dir, err := os.MkdirTemp("", "docbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	contestants, err := s.load(ctx, &rig{dir: dir}, documents)
	defer func() {
		for _, c := range contestants {
			err = errors.Join(err, c.store.stop())
		}
	}()
	if err != nil {
		return err
	}
	l := load{corpus: documents, duration: s.duration}
	if s.zipfian {
		l.zipf = zipf.New(documents.size())
	}
	fmt.Printf("%-8s %-6s %-14s %12s %10s %10s %14s %7s\n", "callers", "batch", "store", "documents/s", "p50", "p99", "server us/doc", "ratio")
	for _, l.callers = range s.callers {
		for _, l.batch = range s.batches {
			if err := s.row(&l, contestants); err != nil {
				return err
			}
		}
	}
	for _, c := range contestants {
		if p := c.store.processes(); len(p) > 0 {
			fmt.Printf("# %s: %d MB anonymous\n", c.name, anonymousBytes(p)>>20)
		}
	}
	return nil
}

// load starts and fills the stores.
func (s *settings) load(ctx context.Context, r *rig, documents *corpus) (contestants []*contestant, err error) {
	if s.servers != nil {
		return []*contestant{{name: "docstore", store: &runningStore{s.servers, s.collection}}}, nil
	}
	for _, name := range s.stores {
		c := &contestant{name: name, store: stores[name](r)}
		started := time.Now()
		err := c.store.load(ctx, documents)
		if missing := (missingError{}); errors.As(err, &missing) {
			fmt.Printf("# %s is left out: %v\n", name, missing)
			continue
		}
		contestants = append(contestants, c)
		if err != nil {
			return contestants, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("# %s: %d documents loaded in %.1f s, %d MB anonymous\n", name, documents.size(), time.Since(started).Seconds(), anonymousBytes(c.store.processes())>>20)
	}
	if len(contestants) == 0 {
		return nil, errors.New("no store is left to measure")
	}
	return contestants, nil
}

// row measures all stores in turns.
func (s *settings) row(l *load, contestants []*contestant) (err error) {
	for _, c := range contestants {
		c.results = nil
		if c.client, err = c.store.client(l.callers); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { err = errors.Join(err, c.client.close()) }()
	}
	for range s.rounds {
		for _, c := range contestants {
			r, err := l.measure(c.client, c.store.processes())
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.results = append(c.results, r)
		}
	}
	first := middle(contestants[0].results).rate
	for _, c := range contestants {
		r := middle(c.results)
		fmt.Printf("%-8d %-6d %-14s %12.0f %10v %10v %14.2f %7.2f\n", l.callers, l.batch, c.name, r.rate, r.p50, r.p99, r.server, first/r.rate)
	}
	return nil
}

// middle is the round whose rate is the median, with the median of the server's time.
func middle(rounds []result) result {
	slices.SortFunc(rounds, func(a, b result) int { return cmp.Compare(a.server, b.server) })
	server := rounds[len(rounds)/2].server
	slices.SortFunc(rounds, func(a, b result) int { return cmp.Compare(a.rate, b.rate) })
	r := rounds[len(rounds)/2]
	r.server = server
	return r
}
