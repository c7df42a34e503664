package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
	"docstore/bench/internal/zipf"
)

// load is a pattern of requests.
type load struct {
	corpus       *corpus
	distribution string
	zipf         *zipf.Zipf // nil: uniform
	callers      int
	batch        int
	duration     time.Duration
	// seed of the requested documents: the same for each store, different in each round.
	seed uint64
}

// phase names the load next to a background task in the results.
func (l *load) phase(beside string) string {
	name := fmt.Sprintf("%d callers, batches of %d, %s", l.callers, l.batch, l.distribution)
	if beside != besideNothing {
		name += ", beside " + beside
	}
	return name
}

// measure fetches random documents with all callers. The figures "server us" and "client us" are the
// processor time per document; "misses" is the share of documents that the client had to fill in.
func (l *load) measure(c client, processes []*process.Process) (figures, error) {
	serverBefore, clientBefore, missesBefore := process.CPUSeconds(processes), process.OwnCPU(), missesOf(c)
	watch := machine.NewWatch(clientBefore + seconds(serverBefore))
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
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	server, client := process.CPUSeconds(processes), process.OwnCPU()
	all := slices.Concat(latencies...)
	documents := float64(len(all) * l.batch)
	f := figures{
		"documents/s": documents / elapsed.Seconds(), "others": watch.Others(client + seconds(server)),
		"server us": (server - serverBefore) * 1e6 / documents, "client us": float64(client-clientBefore) / 1e3 / documents,
		"misses": float64(missesOf(c)-missesBefore) / documents,
	}
	results.AddPercentiles(f, "", all)
	return f, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// missesOf returns the number of documents that a client has filled in so far.
func missesOf(c client) int64 {
	if m, ok := c.(interface{ misses() int64 }); ok {
		return m.misses()
	}
	return 0
}

// caller is a thread of a front end.
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

// draw chooses the next ids.
func (c *caller) draw() {
	c.asked, c.ids = c.asked[:0], c.ids[:0]
	for range c.load.batch {
		var n int
		if size := c.load.corpus.size(); c.load.zipf == nil {
			n = c.random.IntN(size)
		} else {
			// Spread the popular documents: a step without a common divisor with the size
			// reaches each document once.
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
