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
//	pinned one caller, client and server on a processor each, as on two hosts: otherwise the
//	       kernel decides for each contestant whether a wake-up crosses processors
//	tls    the same with 64 callers over TLS
//	large  the same with 1,024 callers and responses of 10 KB
//	open   arrivals in an open loop, at half of grpc-go's limit; latency counts from the time when
//	       a call was due
//	slow   63 callers of one pool, alone and next to a handler that sleeps
//	       for 10 ms and one that takes page faults
//	bulk   64 callers of one pool, alone and next to one that gets 16 MiB at a time
//	apart  the same with the large responses in another pool
//	connections  memory of both sides per client after one call
//	idle   a server with 10,000 idle clients
//
// Each round measures every contestant once, so that other load on the machine affects all of them.
// Printed are the medians of the rounds: the rate, and per call the processor time of both processes,
// their read and write system calls (without epoll and futex), context switches and allocations.
// -results appends the figures of each round to a file; results that it already has are not measured
// again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"docstore/bench/internal/command"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

func main() { command.Main(run) }

type figures = map[string]float64

// settings are the values of the flags.
type settings struct {
	contestants []string
	workloads   []string
	callers     []int
	rounds      int
	duration    time.Duration
	perContext  int
	sizes       []int
	conns       int
	keeper      results.Keeper
	clients     int
	settle      time.Duration
	quiet       time.Duration
}

const kilobyte = 1 << 10

var (
	grpcAndBoxcar = []string{"grpc-go-1", "grpc-go-2", "grpc-go-4", "boxcar"}
	overTLS       = []string{"grpc-go-tls-1", "grpc-go-tls-2", "grpc-go-tls-4", "boxcar-tls"}
)

var workloads = []struct {
	name string
	run  func(s *settings) error
}{
	{"calls", func(s *settings) error {
		return s.compare("calls", s.contestants, s.callers, []int{kilobyte})
	}},
	{"pinned", (*settings).pinned},
	{"tls", func(s *settings) error { return s.compare("tls", overTLS, []int{64}, []int{kilobyte}) }},
	{"large", func(s *settings) error { return s.compare("large", grpcAndBoxcar, []int{1024}, []int{10 * kilobyte}) }},
	{"open", (*settings).open},
	{"slow", func(s *settings) error {
		return s.interfere("slow", 63, false, neighbour{sleepMethod, kilobyte}, neighbour{faultMethod, kilobyte})
	}},
	{"bulk", func(s *settings) error {
		return s.interfere("bulk", 64, false, neighbour{bulkMethod, maxResponseBytes})
	}},
	// Contention for processors without head-of-line blocking.
	{"apart", func(s *settings) error {
		return s.interfere("apart", 64, true, neighbour{bulkMethod, maxResponseBytes})
	}},
	{"sizes", func(s *settings) error { return s.compare("sizes", s.contestants, []int{64}, s.sizes) }},
	{"connections", func(s *settings) error {
		return s.keeper.Rounds(s.rounds, fmt.Sprintf("connections, %d", s.conns), s.contestants, func(i int) (figures, error) {
			return connections(contestantNamed(s.contestants[i]), s.conns)
		})
	}},
	{"idle", func(s *settings) error {
		names := []string{"boxcar", "boxcar-tls"}
		return s.keeper.Rounds(1, "idle", names, func(i int) (figures, error) { return s.idle(contestantNamed(names[i])) })
	}},
}

func parse(args []string) (s settings, err error) {
	var contestantNames, workloadNames []string
	for _, c := range contestants {
		contestantNames = append(contestantNames, c.name)
	}
	for _, w := range workloads {
		workloadNames = append(workloadNames, w.name)
	}
	flags := flag.NewFlagSet("rpcbench", flag.ContinueOnError)
	command.Words(flags, &s.contestants, "contestants", "echo,boxcar,boxcar-classic,grpc-go-1,grpc-go-2,grpc-go-4,drpc,http",
		"contestants of calls, sizes and connections; ratios are to the first", contestantNames...)
	command.Words(flags, &s.workloads, "workloads", "calls", "workloads", workloadNames...)
	command.Numbers(flags, &s.callers, "callers", "1,64", 1, 1<<20, "numbers of callers for calls")
	command.Numbers(flags, &s.sizes, "sizes", "16,256,1024,4096,16384,65536", minResponseBytes, maxResponseBytes, "response bytes for sizes")
	flags.IntVar(&s.conns, "conns", 1000, "clients for connections; each needs a file descriptor on both sides")
	flags.IntVar(&s.rounds, "rounds", 5, "rounds")
	flags.DurationVar(&s.duration, "duration", time.Second, "length of a measurement, after a tenth of it to warm up")
	flags.IntVar(&s.perContext, "calls-per-context", 16,
		"calls under one context with a deadline, as a front end makes for one page; contexts are a cost of the benchmark")
	flags.IntVar(&s.clients, "clients", 10_000, "clients for idle; each needs a file descriptor on both sides")
	flags.DurationVar(&s.settle, "settle", 150*time.Second,
		"wait of idle before it measures: clients without calls look for better slots less and less often")
	flags.DurationVar(&s.quiet, "quiet", 40*time.Second, "measuring time of idle")
	s.keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return s, err
	}
	if s.conns < 1 || s.rounds < 1 || s.perContext < 1 || s.duration <= 0 || s.clients < 1 || s.settle < 0 || s.quiet <= 0 {
		return s, errors.New("-conns, -rounds, -calls-per-context, -duration, -clients and -quiet must be positive, -settle not negative")
	}
	return s, nil
}

func run(args []string) error {
	if contestant := process.Role(); contestant != "" {
		return serveChild(contestant)
	}
	s, err := parse(args)
	if err != nil {
		return err
	}
	depends := fmt.Sprintf("duration=%v calls-per-context=%d clients=%d", s.duration, s.perContext, s.clients)
	return s.keeper.Run(depends, os.Stdout, s.measure, "ops/s", "due/s", "p50 ns", "p99 ns", "late p99 ns", "cpu ns", "syscalls", "switches", "client allocs", "server allocs",
		"without ops/s", "without p99 ns", "with ops/s", "with p99 ns", "p99 ratio", "client bytes", "server bytes", "before bytes", "after bytes", "bytes each", "cpu share", "others")
}

// measure runs the workloads.
func (s *settings) measure() error {
	for _, w := range workloads {
		if slices.Contains(s.workloads, w.name) {
			if err := w.run(s); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

// compare measures closed loops.
func (s *settings) compare(title string, names []string, callers, sizes []int) (err error) {
	servers, stop, err := startChildren(names)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	for _, n := range callers {
		for _, size := range sizes {
			if err := s.loop(title, names, servers, s.load(n, size)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pinned measures one caller, with the client on the first processor and the servers on the last one.
func (s *settings) pinned() (err error) {
	servers, stop, err := startChildren(s.contestants)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	for _, server := range servers {
		if _, err := process.Pin(server.pid(), -1); err != nil {
			return err
		}
	}
	unpin, err := process.Pin(os.Getpid(), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpin()) }()
	return s.loop("pinned", s.contestants, servers, s.load(1, kilobyte))
}

// loop measures a closed loop.
func (s *settings) loop(title string, names []string, servers []*child, l load) error {
	return s.keeper.Rounds(s.rounds, l.phase(title), names, func(i int) (figures, error) {
		return measure(contestantNamed(names[i]), servers[i], l)
	})
}

func (s *settings) load(callers, responseBytes int) load {
	return load{callers, responseBytes, s.duration, s.perContext}
}
