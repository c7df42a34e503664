package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"docstore/bench/internal/files"
	"docstore/bench/internal/histogram"
	"docstore/bench/internal/process"
	"docstore/bench/internal/zipf"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

// collection is a queue that docstore-updater appends to, and the daemon that serves it.
type collection struct {
	*documents
	dir          string
	daemon       *process.Process
	boxcar, http string
}

// measureCollection lets the queue in a directory grow to each of the sizes and measures the daemon.
// It continues the queue of an earlier run.
func (o *options) measureCollection(ctx context.Context, report func(sample) error) (err error) {
	d, err := readDocuments(o.file)
	if err != nil {
		return err
	}
	c := &collection{documents: d, dir: filepath.Join(o.dir, "documents")}
	if _, err := process.Build(c.path("bin")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.daemon.Stop()) }()
	for _, size := range o.documents {
		s := sample{ofDocuments, size, make(map[string]float64)}
		if err := c.grow(ctx, size, s.Values); err != nil {
			return err
		}
		if err := report(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *collection) path(name string) string { return filepath.Join(c.dir, name) }

// grow measures one size.
func (c *collection) grow(ctx context.Context, size int, values map[string]float64) error {
	if err := c.append(ctx, size, values); err != nil {
		return err
	}
	if err := os.RemoveAll(c.path("index")); err != nil {
		return err
	}
	built, err := c.serve(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(c.settle(), c.daemon.Stop()); err != nil {
		return err
	}
	ready, err := c.serve(ctx)
	if err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	for _, callers := range []int{1, 64} {
		for _, popular := range []*zipf.Zipf{zipf.New(size), nil} {
			if err := c.get(ctx, size, callers, popular, values); err != nil {
				return err
			}
		}
	}
	queue, queueErr := files.Bytes(c.path("queue"), "")
	index, indexErr := files.Bytes(c.path("index"), "")
	anonymous, memoryErr := process.Memory(c.daemon.Pid(), "RssAnon")
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.daemon.Pid()))
	if err := errors.Join(queueErr, indexErr, memoryErr, err, c.daemon.Stop()); err != nil {
		return err
	}
	values[indexedColumn], values[readyColumn] = float64(size)/built.Seconds(), ready.Seconds()
	values[queueColumn], values[indexColumn] = float64(queue)/1e9, float64(index)/1e9
	values[memoryColumn], values[descriptorsColumn] = float64(anonymous)/1e6, float64(len(descriptors))
	return nil
}

// Columns of the documents, with those of gets and some of the index.
const (
	appendedColumn = "appended/s"
	indexedColumn  = "indexed/s"
	queueColumn    = "queue GB"
	indexColumn    = "index GB"
	readyColumn    = "ready s"
)

// getColumns returns the columns of gets: rate, median and 99th percentile.
func getColumns(callers int, popular bool) (rate, p50, p99 string) {
	name := fmt.Sprintf("%d uniform", callers)
	if popular {
		name = fmt.Sprintf("%d zipfian", callers)
	}
	return name + "/s", name + " p50 us", name + " p99 us"
}

// append appends the documents up to a size, if some are missing.
func (c *collection) append(ctx context.Context, size int, values map[string]float64) error {
	from := 0
	text, err := os.ReadFile(c.path("size"))
	if err == nil {
		from, err = strconv.Atoi(string(text))
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil || from >= size {
		return err
	}
	begun := time.Now()
	updater := exec.CommandContext(ctx, c.path("bin/docstore-updater"), "append", "--queue", c.path("queue"), "--quiet")
	updater.Stderr = os.Stderr
	input, err := updater.StdinPipe()
	if err != nil {
		return err
	}
	if err := updater.Start(); err != nil {
		return err
	}
	if err := errors.Join(c.write(input, from, size), updater.Wait()); err != nil {
		return err
	}
	values[appendedColumn] = float64(size-from) / time.Since(begun).Seconds()
	return os.WriteFile(c.path("size"), []byte(strconv.Itoa(size)), 0o600)
}

// serve starts the daemon and returns the time until it is ready.
func (c *collection) serve(ctx context.Context) (time.Duration, error) {
	if err := process.FreeAddresses(&c.boxcar, &c.http); err != nil {
		return 0, err
	}
	begun := time.Now()
	var err error
	c.daemon, err = process.Start("docserviced", exec.Command(c.path("bin/docserviced"), "serve", "--collection", "documents="+c.path("queue"),
		"--data", c.path("index"), "--boxcar", c.boxcar, "--http", c.http, "--quiet"))
	if err != nil {
		return 0, err
	}
	err = c.daemon.Ready(ctx, "http://"+c.http+"/readyz")
	return time.Since(begun), err
}

// settle waits until the daemon is idle: its merges have ended.
func (c *collection) settle() error {
	const pause, idle = time.Second, 50 * time.Millisecond
	for {
		before, err := process.CPU(c.daemon.Pid())
		if err != nil {
			return err
		}
		time.Sleep(pause)
		after, err := process.CPU(c.daemon.Pid())
		if err != nil || after-before < idle {
			return err
		}
	}
}

// warmUp and duration are the times of a measurement of gets.
const warmUp, duration = 2 * time.Second, 6 * time.Second

// get measures gets by a number of callers.
func (c *collection) get(ctx context.Context, size, callers int, popular *zipf.Zipf, values map[string]float64) error {
	pool, err := boxcarrpc.NewPool(discovery.Static(c.boxcar), &boxcarrpc.PoolOptions{Size: callers, Methods: docservice.IdempotentMethods()})
	if err != nil {
		return err
	}
	client := docservice.NewClient(pool, "documents")
	from := time.Now().Add(warmUp)
	latencies, failures := make([]histogram.Histogram, callers), make([]error, callers)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			failures[i] = c.getUntil(ctx, client, rand.New(rand.NewPCG(uint64(i), uint64(size))), size, popular, from, &latencies[i])
		})
	}
	running.Wait()
	all := &latencies[0]
	for i := range latencies[1:] {
		all.Merge(&latencies[1+i])
	}
	rate, p50, p99 := getColumns(callers, popular != nil)
	values[rate], values[p50], values[p99] = float64(all.Total)/duration.Seconds(), nanoseconds(all.Quantile(0.5))/1e3, nanoseconds(all.Quantile(0.99))/1e3
	return errors.Join(errors.Join(failures...), pool.Close())
}

// getUntil gets documents in one thread and verifies one in 64.
func (c *collection) getUntil(ctx context.Context, client *docservice.Client, random *rand.Rand, size int, popular *zipf.Zipf,
	from time.Time, latencies *histogram.Histogram) error {
	var id, got, want []byte
	for seen := 0; ; seen++ {
		n := random.IntN(size)
		if popular != nil {
			n = int(popular.Draw(random) * 2_654_435_761 % uint64(size)) // spread the popular documents
		}
		id = c.appendID(id[:0], n)
		begun := time.Now()
		var err error
		if got, err = client.Get(ctx, got[:0], string(id)); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		ended := time.Now()
		if ended.After(from.Add(duration)) {
			return nil
		}
		if begun.After(from) {
			latencies.Add(ended.Sub(begun))
		}
		if seen%64 == 0 {
			if want = c.documents.append(want[:0], n); !bytes.Equal(got, want) {
				return fmt.Errorf("%s: the document is wrong", id)
			}
		}
	}
}
