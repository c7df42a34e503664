// Freshness measures how long a document takes from being handed to
// docstore-updater until a daemon answers with it: one daemon on the queue's own
// file system, and one on a copy that deploy/docstore-sync keeps by rsync.
//
//	cd bench && go run ./freshness -rate 50 -duration 30s
//
// It builds the commands, runs them as they would be run, writes a line at a time
// into the updater's standard input (or with -follow into a file that it follows), and
// asks both daemons for each document until it is there. It prints a row for each
// daemon, and one of how late a timer of this process was meanwhile. A stall of the
// machine of 150 ms meets seven documents in a row at 47 a second, and so is the p99 of
// a run of 20 seconds by itself: look at that row's max. rsync must be installed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"docstore/bench/internal/results"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "freshness:", err)
		os.Exit(1)
	}
}

// settings is what the flags say.
type settings struct {
	rate     int
	duration time.Duration
	flush    time.Duration
	interval time.Duration
	patience time.Duration

	results, table string
	follow         bool
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("freshness", flag.ContinueOnError)
	flags.IntVar(&s.rate, "rate", 50, "documents appended a second")
	flags.DurationVar(&s.duration, "duration", 30*time.Second, "for how long documents are appended")
	flags.DurationVar(&s.flush, "flush-interval", 20*time.Millisecond, "docstore-updater's --flush-interval")
	flags.DurationVar(&s.interval, "interval", time.Second, "docstore-sync's --interval, in whole seconds")
	flags.BoolVar(&s.follow, "follow", false, "write to a file that docstore-updater follows, not into its standard input")
	flags.DurationVar(&s.patience, "patience", time.Minute, "how late a document may be before it counts as lost")
	flags.StringVar(&s.results, "results", "", "file of results to add to; what it has is not measured again")
	flags.StringVar(&s.table, "table", "", "name of these results in the file")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("%q: there are no arguments", flags.Arg(0))
	case s.rate < 1 || s.rate > 1000:
		return s, fmt.Errorf("-rate %d: want 1 to 1000", s.rate)
	case s.duration <= 0 || s.flush <= 0 || s.patience <= 0:
		return s, errors.New("-duration, -flush-interval and -patience must be more than nothing")
	case s.interval <= 0 || s.interval%time.Second != 0:
		return s, fmt.Errorf("-interval %v: want whole seconds", s.interval)
	}
	return s, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	keeper, err := results.NewKeeper("freshness", s.table,
		fmt.Sprintf("rate=%d duration=%v flush-interval=%v interval=%v", s.rate, s.duration, s.flush, s.interval), s.results)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	if keeper.Has(rows[len(rows)-1], phase, 1) {
		return nil
	}
	rig, err := startRig(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()

	var table bytes.Buffer
	fmt.Fprintf(&table, "%d documents/s for %v, flushed every %v, copied every %v\n", s.rate, s.duration, s.flush, s.interval)
	timer := startTimer()
	latencies, err := measure(ctx, s, rig)
	late := timer()
	if err != nil {
		return err
	}
	fmt.Fprintf(&table, "%-18s %9s %9s %9s %9s %9s\n", "daemon", "documents", "p50", "p90", "p99", "max")
	for i, name := range rows {
		l := late
		if i < len(latencies) {
			l = latencies[i]
		}
		slices.Sort(l)
		at := func(percent int) time.Duration { return l[(len(l)-1)*percent/100].Round(time.Millisecond) }
		if err := keeper.Add(name, phase, 1, map[string]float64{
			"documents": float64(len(l)), "p50 ns": float64(at(50)), "p90 ns": float64(at(90)), "p99 ns": float64(at(99)), "max ns": float64(at(100)),
		}); err != nil {
			return err
		}
		fmt.Fprintf(&table, "%-18s %9d %9v %9v %9v %9v\n", name, len(l), at(50), at(90), at(99), at(100))
	}
	_, err = table.WriteTo(out)
	return err
}

// rows are those of the table; the last one is of this process.
var rows = []string{"same file system", "through rsync", "a timer, late by"}

// phase is what the results are called.
const phase = "visible"

// askInterval is the pause between two questions for a document; it is what the
// figures may be too high by.
const askInterval = 2 * time.Millisecond

// startTimer measures how late a timer is until it is stopped.
func startTimer() (stop func() []time.Duration) {
	ended, result := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var late []time.Duration
		for {
			due := time.Now().Add(askInterval)
			select {
			case <-time.After(askInterval):
				late = append(late, time.Since(due))
			case <-ended:
				result <- append(late, 0) // not empty, however soon it ends
				return
			}
		}
	}()
	return func() []time.Duration {
		close(ended)
		return <-result
	}
}

// measure appends documents and returns how long each took to each daemon.
func measure(ctx context.Context, s settings, rig *rig) (latencies [2][]time.Duration, err error) {
	var clients [2]*docservice.Client
	for i, d := range rig.daemons {
		pool, opening := boxcarrpc.NewPool(discovery.Static(d.boxcar), &boxcarrpc.PoolOptions{
			Size: 64, MaxWait: s.patience, Methods: docservice.IdempotentMethods(),
		})
		if opening != nil {
			return latencies, opening
		}
		defer func() { err = errors.Join(err, pool.Close()) }()
		if err := pool.WaitReady(ctx); err != nil {
			return latencies, err
		}
		clients[i] = docservice.NewClient(pool, collection)
	}
	count := max(1, int(s.duration.Seconds()*float64(s.rate)))
	for i := range latencies {
		latencies[i] = make([]time.Duration, count)
	}
	failures := make(chan error, len(clients)*count)
	var waiting sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(s.rate))
	defer ticker.Stop()
	for n := range count {
		id := fmt.Sprint("job-", n)
		document := fmt.Appendf(nil, `{"id":%q,"title":"document %d","text":%q}`, id, n, bytes.Repeat([]byte("text "), 100))
		appended := time.Now()
		if _, err := rig.input.Write(append(document, '\n')); err != nil {
			return latencies, fmt.Errorf("writing to docstore-updater: %w", err)
		}
		for i, client := range clients {
			waiting.Go(func() {
				var err error
				if latencies[i][n], err = waitFor(ctx, client, id, document, appended, s.patience); err != nil {
					failures <- err
				}
			})
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return latencies, ctx.Err()
		}
	}
	waiting.Wait()
	close(failures)
	return latencies, <-failures
}

// waitFor asks for a document until it is there, and returns how old it is then.
func waitFor(ctx context.Context, client *docservice.Client, id string, want []byte, appended time.Time, patience time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, appended.Add(patience))
	defer cancel()
	for {
		got, err := client.Get(ctx, nil, id)
		switch {
		case err == nil && !bytes.Equal(got, want):
			return 0, fmt.Errorf("%s: got other bytes than were appended", id)
		case err == nil:
			return time.Since(appended), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s is not there after %v: %w", id, patience, err)
		case <-time.After(askInterval):
		}
	}
}
