// Freshness measures how long a document takes from being handed to
// docstore-updater until a daemon answers with it: one daemon on the queue's own
// file system, one on a copy that deploy/docstore-sync keeps by rsync, and two that follow
// collections that separate updaters publish: to a directory, and to an S3 server in this process that delays
// requests by the latencies of S3 (PUT 100 ms at the median and 195 ms at p99, others 63 and 78 ms).
//
//	cd bench && go run ./freshness -rate 50 -duration 30s
//
// It builds the commands, writes a line at a time to the updaters' standard input, and asks all
// daemons for each document until they have it. It prints a row for each daemon, and one of how late a
// timer of this process was in that time: a stall of the machine of 150 ms delays seven documents at 47
// a second, which is the p99 of a run of 20 seconds. rsync must be installed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"docstore/bench/internal/command"
	"docstore/bench/internal/results"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

func main() {
	command.MainContext(func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout) })
}

// settings are the values of the flags.
type settings struct {
	rate                      int
	duration, flush, interval time.Duration
	delay                     float64
	keeper                    results.Keeper
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("freshness", flag.ContinueOnError)
	flags.IntVar(&s.rate, "rate", 50, "documents appended a second")
	flags.DurationVar(&s.duration, "duration", 30*time.Second, "for how long documents are appended")
	flags.DurationVar(&s.flush, "flush-interval", 20*time.Millisecond, "docstore-updater's --flush-interval")
	flags.DurationVar(&s.interval, "interval", time.Second, "docstore-sync's --interval, in whole seconds")
	flags.Float64Var(&s.delay, "s3-delay", 1, "factor of the delays of the S3 server")
	s.keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return s, err
	}
	if s.rate < 1 || s.rate > 1000 || s.duration <= 0 || s.flush <= 0 || s.interval <= 0 || s.interval%time.Second != 0 {
		return s, errors.New("want -rate of 1 to 1000, -duration and -flush-interval of more than 0, -interval in whole seconds")
	}
	return s, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	depends := fmt.Sprintf("rate=%d duration=%v flush-interval=%v interval=%v s3-delay=%v", s.rate, s.duration, s.flush, s.interval, s.delay)
	return s.keeper.Run(depends, out, func() error { return s.record(ctx) }, "documents", "p50 ns", "p90 ns", "p99 ns", "max ns")
}

// record measures all contestants at once and records their figures.
func (s settings) record(ctx context.Context) (err error) {
	if s.keeper.Has(rows[len(rows)-1], phase, 1) {
		return nil
	}
	rig, err := startRig(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	timer := startTimer()
	latencies, err := measure(ctx, s, rig)
	late := timer()
	if err != nil {
		return err
	}
	return s.keeper.Rounds(1, phase, rows, func(i int) (map[string]float64, error) {
		l := append(latencies[:], late)[i]
		f := map[string]float64{"documents": float64(len(l)), "max ns": float64(slices.Max(l))}
		results.AddPercentiles(f, "", l)
		return f, nil
	})
}

// rows are the contestants; the last one is this process.
var rows = []string{"same file system", "through rsync", "through a directory", "through S3", "a timer, late by"}

// phase is the phase in the results.
const phase = "visible"

// patience is the time after which a document counts as lost.
const patience = time.Minute

// askInterval is the pause between two requests for a document, and the error of the figures.
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
				result <- append(late, 0) // at least one
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
func measure(ctx context.Context, s settings, rig *rig) (latencies [daemons][]time.Duration, err error) {
	var clients [daemons]*docservice.Client
	for i, address := range rig.boxcar {
		pool, opening := boxcarrpc.NewPool(discovery.Static(address), &boxcarrpc.PoolOptions{
			Size: 64, MaxWait: patience, Methods: docservice.IdempotentMethods(),
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
	if err := warm(ctx, rig, clients[:]); err != nil {
		return latencies, err
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
		if err := rig.write(document); err != nil {
			return latencies, err
		}
		for i, client := range clients {
			waiting.Go(func() {
				var err error
				if latencies[i][n], err = waitFor(ctx, client, id, document, appended); err != nil {
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

// warm writes a document and waits until all daemons have it: the first manifest needs a second
// and the test of the store.
func warm(ctx context.Context, rig *rig, clients []*docservice.Client) error {
	document := []byte(`{"id":"warm"}`)
	if err := rig.write(document); err != nil {
		return err
	}
	for _, client := range clients {
		if _, err := waitFor(ctx, client, "warm", document, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// waitFor fetches a document until it exists, and returns its age at that time.
func waitFor(ctx context.Context, client *docservice.Client, id string, want []byte, appended time.Time) (time.Duration, error) {
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
			return 0, fmt.Errorf("%s has not arrived after %v: %w", id, patience, err)
		case <-time.After(askInterval):
		}
	}
}
