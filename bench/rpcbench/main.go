// Rpcbench compares the cost of a call over Boxcar, a TCP echo, grpc-go, drpc and net/http: requests of
// 16 bytes, a deadline on each call, client and server in a process each.
//
//	go run ./rpcbench -rounds 5 -duration 500ms
//	go run ./rpcbench -workloads tls,open,large,slow,bulk,apart,idle
//
// The workloads, with responses of 1 KB by default:
//
//	calls  -callers callers, each sending its next request after the last response
//	sizes  the same with 64 callers and responses of several -sizes
//	tls    the same with 64 callers over TLS
//	large  the same with 1,024 callers and responses of 10 KB
//	open   arrivals in an open loop, at half of grpc-go's limit; latency counts from the time when
//	       a call was due
//	slow   63 callers on one connection, alone and next to a handler that sleeps
//	       for 10 ms and one that takes page faults
//	bulk   64 callers on one connection, alone and next to one that gets 16 MiB
//	       at a time
//	apart  the same with the large responses on another connection
//	connections  memory of both sides per client after one call
//	idle   a server with 10,000 idle clients
//
// Each round measures every contestant once, so that other load on the machine affects all of them;
// it prints the medians of the rounds: the rate, and per call the processor time of both processes,
// their read and write system calls (without epoll and futex) and the allocations of each, and the peak
// memory of each. -results appends the figures of each round to a file; results that it already has
// are not measured again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/results"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rpcbench:", err)
		os.Exit(1)
	}
}

// settings is what the flags say.
type settings struct {
	serve       string // run the server of this contestant
	contestants []contestant
	workloads   []workload
	callers     []int
	rounds      int
	duration    time.Duration
	perContext  int
	sizes       []int
	conns       int
	keeper      *results.Keeper
	clients     int
	settle      time.Duration
	quiet       time.Duration
}

// A workload is a table of the report.
type workload struct {
	name string
	run  func(settings) error
}

var workloads = []workload{
	{"calls", runCalls},
	{"tls", runTLS},
	{"large", runLarge},
	{"open", runOpen},
	{"slow", runBesideSlow},
	{"bulk", runBesideBulk},
	{"apart", runApartFromBulk},
	{"sizes", runSizes},
	{"connections", runConnections},
	{"idle", runIdle},
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("rpcbench", flag.ExitOnError)
	flags.StringVar(&s.serve, "serve", "", "run the server of this contestant; rpcbench starts such children")
	names := flags.String("contestants", "echo,boxcar,boxcar-classic,grpc-go-1,grpc-go-2,grpc-go-4,drpc,http",
		"whom calls compares; ratios are to the first")
	chosen := flags.String("workloads", "calls", "comma-separated workloads")
	callers := flags.String("callers", "1,64", "numbers of callers for calls")
	sizes := flags.String("sizes", "16,256,1024,4096,16384,65536", "response bytes for sizes, at least 16")
	flags.IntVar(&s.conns, "conns", 1000, "clients for connections; each needs a file descriptor on both sides")
	file := flags.String("results", "", "file of results to add to; its results are not measured again")
	table := flags.String("table", "", "name of these results in the file")
	flags.IntVar(&s.rounds, "rounds", 5, "rounds")
	flags.DurationVar(&s.duration, "duration", time.Second, "length of a measurement, after a tenth of it to warm up")
	flags.IntVar(&s.perContext, "calls-per-context", 16,
		"calls under one context with a deadline, as a front end makes for one page; the context is the bench's cost, not the contestant's")
	flags.IntVar(&s.clients, "clients", 10_000, "clients for idle; each needs a file descriptor on both sides")
	flags.DurationVar(&s.settle, "settle", 150*time.Second,
		"how long idle waits first: a client asks for better slots more and more rarely, and reaches once a minute after two")
	flags.DurationVar(&s.quiet, "quiet", 40*time.Second, "measuring time of idle")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.contestants, err = contestantsNamed(strings.Split(*names, ",")...); err != nil {
		return s, err
	}
	for name := range strings.SplitSeq(*chosen, ",") {
		w, ok := named(workloads, name, func(w workload) string { return w.name })
		if !ok {
			return s, fmt.Errorf("-workloads %q: no such workload", name)
		}
		s.workloads = append(s.workloads, w)
	}
	if s.callers, err = numbers("-callers", *callers, 1); err != nil {
		return s, err
	}
	if s.sizes, err = numbers("-sizes", *sizes, minResponseBytes); err != nil {
		return s, err
	}
	if s.conns < 1 || s.rounds < 1 || s.perContext < 1 || s.duration <= 0 || s.clients < 1 || s.settle < 0 || s.quiet <= 0 {
		return s, errors.New("-conns, -rounds, -calls-per-context, -duration, -clients and -quiet must be positive, -settle not negative")
	}
	s.keeper, err = results.NewKeeper("rpcbench", *table,
		fmt.Sprintf("duration=%v calls-per-context=%d clients=%d", s.duration, s.perContext, s.clients), *file)
	return s, err
}

// numbers are those of a flag.
func numbers(flagName, list string, least int) (all []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < least || n > maxResponseBytes {
			return nil, fmt.Errorf("%s %q: want numbers from %d to %d", flagName, list, least, maxResponseBytes)
		}
		all = append(all, n)
	}
	return all, nil
}

func run(args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.keeper.Close()) }()
	if s.serve != "" {
		return serveChild(s.serve)
	}
	fmt.Printf("%s, %s, commit %s; rounds: %d of %v, medians\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), machine.Name(), machine.Commit(), s.rounds, s.duration)
	for _, warning := range machine.BuildWarnings() {
		fmt.Println("WARNING:", warning)
	}
	for _, w := range s.workloads {
		if err := w.run(s); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// load is the settings as a load of so many callers.
func (s settings) load(callers, responseBytes int) load {
	return load{callers, responseBytes, s.duration, s.perContext}
}

const kilobyte = 1 << 10

func runCalls(s settings) error {
	var loads []load
	for _, callers := range s.callers {
		loads = append(loads, s.load(callers, kilobyte))
	}
	return compare(s, "calls", s.contestants, loads...)
}

func runSizes(s settings) error {
	var loads []load
	for _, size := range s.sizes {
		loads = append(loads, s.load(64, size))
	}
	return compare(s, "sizes", s.contestants, loads...)
}

func runTLS(s settings) error {
	all, err := contestantsNamed("grpc-go-tls-1", "grpc-go-tls-2", "grpc-go-tls-4", "boxcar-tls")
	if err != nil {
		return err
	}
	return compare(s, "tls", all, s.load(64, kilobyte))
}

func runLarge(s settings) error {
	all, err := contestantsNamed("grpc-go-1", "grpc-go-2", "grpc-go-4", "boxcar")
	if err != nil {
		return err
	}
	return compare(s, "large", all, s.load(1024, 10*kilobyte))
}
