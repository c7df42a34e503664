// Rpcbench compares what one call costs over Boxcar, a bare TCP echo, grpc-go
// and drpc: requests of 16 bytes, responses of 1 KB, a deadline on each call,
// client and server in a process each, as many callers as it is told, each
// sending its next request when it has the answer to the last.
//
//	go run ./rpcbench -callers 1,64 -rounds 5 -duration 1s
//
// Each round measures every contestant once, so that what else the machine does
// meets all of them; the medians of the rounds are printed. Beside the rate stand
// the processor time of both processes, which tells more on a busy machine, their
// read and write system calls, and the allocations of each, per call. Waiting (epoll, futex) is not among the system calls.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	requestBytes  = 16
	responseBytes = 1024
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rpcbench:", err)
		os.Exit(1)
	}
}

// settings is what the flags say.
type settings struct {
	serve       string // be the server of this contestant
	contestants []contestant
	callers     []int
	rounds      int
	duration    time.Duration
	perContext  int
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("rpcbench", flag.ExitOnError)
	var all []string
	for _, c := range contestants {
		all = append(all, c.name)
	}
	flags.StringVar(&s.serve, "serve", "", "be the server of this contestant (what rpcbench starts by itself)")
	names := flags.String("contestants", strings.Join(all, ","), "whom to compare; ratios are to the first")
	callers := flags.String("callers", "1,64", "numbers of callers")
	flags.IntVar(&s.rounds, "rounds", 5, "how often everything is measured")
	flags.DurationVar(&s.duration, "duration", time.Second, "of each measurement, after a tenth of it to warm up")
	flags.IntVar(&s.perContext, "calls-per-context", 16,
		"calls under one context with a deadline, as a front end makes for one page; the context is the bench's cost, not the contestant's")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	for name := range strings.SplitSeq(*names, ",") {
		c, err := contestantNamed(name)
		if err != nil {
			return s, err
		}
		s.contestants = append(s.contestants, c)
	}
	for field := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return s, fmt.Errorf("-callers %q: want numbers from 1", *callers)
		}
		s.callers = append(s.callers, n)
	}
	if s.rounds < 1 || s.perContext < 1 || s.duration <= 0 {
		return s, errors.New("-rounds, -calls-per-context and -duration must be positive")
	}
	return s, nil
}

func run(args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if s.serve != "" {
		return serveChild(s.serve)
	}
	servers := make([]*child, len(s.contestants))
	for i, c := range s.contestants {
		if servers[i], err = startChild(c.name); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers[i].stop()) }()
	}
	fmt.Printf("%s, %d processors, %s; %d rounds of %v, medians\n",
		runtime.Version(), runtime.GOMAXPROCS(0), time.Now().UTC().Format("2006-01-02 15:04 UTC"), s.rounds, s.duration)
	for _, callers := range s.callers {
		results := make([][]result, len(s.contestants))
		for range s.rounds {
			for i, c := range s.contestants {
				r, err := measure(c, servers[i], callers, s)
				if err != nil {
					return fmt.Errorf("%s, %d callers: %w", c.name, callers, err)
				}
				results[i] = append(results[i], r)
			}
		}
		report(s, callers, results)
	}
	return nil
}

// report writes a row for each contestant: the median of each figure by itself,
// the ratio the median of the rounds' ratios.
func report(s settings, callers int, results [][]result) {
	fmt.Printf("\n%-14s %8s %11s %17s %6s %9s %9s %9s %9s %9s\n", "contestant", "callers", "calls/s", "slowest-fastest",
		"ratio", "p50", "p99", "cpu", "syscalls", "allocs c+s")
	for i, c := range s.contestants {
		rounds := results[i]
		rates := sorted(rounds, func(r result) float64 { return r.rate })
		ratios := make([]float64, len(rounds))
		for k := range rounds {
			ratios[k] = rounds[k].rate / results[0][k].rate
		}
		slices.Sort(ratios)
		fmt.Printf("%-14s %8d %11.0f %8.0f-%8.0f %6.2f %9v %9v %9v %9.2f %5.1f+%.1f\n", c.name, callers,
			median(rates), rates[0], rates[len(rates)-1], median(ratios),
			time.Duration(median(sorted(rounds, func(r result) float64 { return float64(r.p50) }))).Round(100*time.Nanosecond),
			time.Duration(median(sorted(rounds, func(r result) float64 { return float64(r.p99) }))).Round(100*time.Nanosecond),
			time.Duration(median(sorted(rounds, func(r result) float64 { return float64(r.cpu) }))).Round(10*time.Nanosecond),
			median(sorted(rounds, func(r result) float64 { return r.syscalls })),
			median(sorted(rounds, func(r result) float64 { return r.clientAllocs })),
			median(sorted(rounds, func(r result) float64 { return r.serverAllocs })))
	}
}

func sorted[T any, N cmp.Ordered](rounds []T, figure func(T) N) []N {
	figures := make([]N, len(rounds))
	for i, r := range rounds {
		figures[i] = figure(r)
	}
	slices.Sort(figures)
	return figures
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// A contestant is a way to make a call.
type contestant struct {
	name  string
	serve func() (address string, err error)
	// connect makes a client for so many callers.
	connect func(address string, callers int) (client, error)
}

// A client makes calls.
type client interface {
	// call sends the request and returns the response, which may lie in dst. It
	// is used by all callers at once, each with its own number.
	call(ctx context.Context, caller int, request, dst []byte) ([]byte, error)
	Close() error
}

var contestants = []contestant{
	{"echo", serveEcho, connectEcho},
	{"boxcar", serveBoxcar, connectBoxcar},
	{"boxcar-classic", serveBoxcar, connectClassic},
	{"grpc-go-1", serveGRPC, connectGRPC(1)},
	{"grpc-go-2", serveGRPC, connectGRPC(2)},
	{"grpc-go-4", serveGRPC, connectGRPC(4)},
	{"drpc", serveDRPC, connectDRPC},
}

func contestantNamed(name string) (contestant, error) {
	i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })
	if i < 0 {
		return contestant{}, fmt.Errorf("no contestant %q", name)
	}
	return contestants[i], nil
}
