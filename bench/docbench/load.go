package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/process"
	"docstore/bench/internal/zipf"
)

// load is a pattern of requests.
type load struct {
	corpus   *corpus
	zipf     *zipf.Zipf // nil: uniform
	callers  int
	batch    int
	duration time.Duration
	// seed is of the documents that are asked for: in each round others, and in one
	// round the same of each store.
	seed uint64
}

// phase names the load in the results.
func (l *load) phase() string {
	distribution := "uniform"
	if l.zipf != nil {
		distribution = "zipfian"
	}
	return fmt.Sprintf("%d callers, batches of %d, %s", l.callers, l.batch, distribution)
}

// result is one round: documents per second, what a call took, and what of the server's
// and of this process' processor time a document took, in microseconds.
type result struct {
	rate                float64
	p50, p90, p99, p999 time.Duration
	server, client      float64
	others              float64 // share of the processors that others took
	misses              float64 // share of the documents that had to be put in first
}

func (r result) figures() figures {
	return figures{
		"documents/s": r.rate, "p50 ns": float64(r.p50), "p90 ns": float64(r.p90), "p99 ns": float64(r.p99), "p999 ns": float64(r.p999),
		"server us": r.server, "client us": r.client, "others": r.others, "misses": r.misses,
	}
}

// measure fetches random documents with so many callers.
func (l *load) measure(c client, processes []*process.Process) (result, error) {
	cpuBefore, missesBefore := process.CPUSeconds(processes), missesOf(c)
	clientBefore := ownTime(nil)
	watch := machine.NewWatch(ownTime(processes))
	latencies := make([][]time.Duration, l.callers)
	failures := make([]error, l.callers)
	started := time.Now()
	deadline := started.Add(l.duration)
	var running sync.WaitGroup
	for i := range l.callers {
		running.Go(func() {
			one := caller{load: l, client: c, random: rand.New(rand.NewPCG(uint64(i), l.seed))}
			latencies[i], failures[i] = one.fetchUntil(deadline)
		})
	}
	running.Wait()
	elapsed := time.Since(started)
	for _, err := range failures {
		if err != nil {
			return result{}, err
		}
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	documents := float64(len(all) * l.batch)
	at := func(percent float64) time.Duration { return all[int(float64(len(all)-1)*percent/100)] }
	return result{
		rate: documents / elapsed.Seconds(),
		p50:  at(50), p90: at(90), p99: at(99), p999: at(99.9),
		server: (process.CPUSeconds(processes) - cpuBefore) * 1e6 / documents,
		client: float64(ownTime(nil)-clientBefore) / 1e3 / documents,
		others: watch.Others(ownTime(processes)),
		misses: float64(missesOf(c)-missesBefore) / documents,
	}, nil
}

// ownTime is the processor time of this process and of those that serve, so far.
func ownTime(processes []*process.Process) time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it fails on nonsense only
	return time.Duration(usage.Utime.Nano()+usage.Stime.Nano()) + time.Duration(process.CPUSeconds(processes)*float64(time.Second))
}

// missesOf is how many documents a client has had to put in so far.
func missesOf(c client) int64 {
	if m, ok := c.(interface{ misses() int64 }); ok {
		return m.misses()
	}
	return 0
}

// caller is one front end's thread.
type caller struct {
	load   *load
	client client
	random *rand.Rand
	buffer []byte
	want   []byte
	asked  []int
	ids    []string
	seen   int
}

func (c *caller) fetchUntil(deadline time.Time) ([]time.Duration, error) {
	var latencies []time.Duration
	for {
		c.draw()
		started := time.Now()
		if started.After(deadline) && len(latencies) > 0 {
			return latencies, nil
		}
		if err := c.fetch(); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(started))
	}
}

// draw picks the next ids.
func (c *caller) draw() {
	c.asked, c.ids = c.asked[:0], c.ids[:0]
	for range c.load.batch {
		var n int
		if size := c.load.corpus.size(); c.load.zipf == nil {
			n = c.random.IntN(size)
		} else {
			// The popular ones lie anywhere: a step that has no divisor in common with
			// the size goes to each place once.
			n = int(c.load.zipf.Draw(c.random) * 2_654_435_761 % uint64(size))
		}
		c.asked, c.ids = append(c.asked, n), append(c.ids, c.load.corpus.id(n))
	}
}

func (c *caller) fetch() (err error) {
	ctx := context.Background()
	if len(c.ids) == 1 {
		if c.buffer, err = c.client.get(ctx, c.buffer[:0], c.ids[0]); err != nil {
			return fmt.Errorf("%s: %w", c.ids[0], err)
		}
		return c.compare(0, c.buffer)
	}
	return c.client.getMany(ctx, c.ids, c.compare)
}

func (c *caller) compare(i int, got []byte) error {
	if c.seen++; c.load.corpus.made > 0 && c.seen%verifyMade != 0 {
		return nil
	}
	if !c.load.corpus.isDocument(c.asked[i], got, &c.want) {
		return fmt.Errorf("%s: got other bytes than its line", c.ids[i])
	}
	return nil
}
