package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"docstore/ingest"
)

// progress is the state of appending that other goroutines can read.
type progress struct {
	mu      sync.Mutex
	reached reached
	flushed int64 // entries acknowledged
}

// reached is a point that appending has reached.
type reached struct {
	documents, deletes int64
	bad                int64  // skipped records
	bytes              int64  // of the source
	ends               bool   // the source ends some time
	place              string // of the last entry; empty before the first
	cursor             []byte // after the last entry; not changed
}

func (r *reached) entries() int64 { return r.documents + r.deletes }

// count counts an appended entry.
func (r *reached) count(entry *ingest.Record) {
	if entry.Delete {
		r.deletes++
	} else {
		r.documents++
	}
}

func (p *progress) publish(to reached) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = to
}

func (p *progress) now() reached {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached
}

// acknowledge records that all entries up to a point are durable. It returns false if that
// was known.
func (p *progress) acknowledge(to reached) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := to.entries() > p.flushed
	p.flushed = max(p.flushed, to.entries())
	return news
}

// flushing flushes every --flush-interval in a separate goroutine, so that reading and
// appending continue during fsync.
type flushing struct {
	cancel  context.CancelFunc
	failed  chan error // receives the first error, after which it stops
	running sync.WaitGroup
}

func (a *appender) startFlushing() *flushing {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flushing{cancel: cancel, failed: make(chan error, 1)}
	if a.options.flushInterval > 0 {
		f.running.Go(func() { f.run(ctx, a) })
	}
	return f
}

func (f *flushing) run(ctx context.Context, a *appender) {
	ticker := time.NewTicker(a.options.flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := a.flushDurably(); err != nil {
				f.failed <- err
				return
			}
		}
	}
}

// stop stops the goroutine and waits for a flush in progress.
func (f *flushing) stop() {
	f.cancel()
	f.running.Wait()
}

// flushDurably makes the appended entries durable, and acknowledges them. It is safe for
// concurrent use.
func (a *appender) flushDurably() error {
	at, begun := a.progress.now(), time.Now()
	if err := a.writer.Flush(); err != nil {
		return fmt.Errorf("flushing %s: %w; earlier flushes are durable", a.options.queueDir, err)
	}
	if !a.progress.acknowledge(at) {
		return nil
	}
	a.metrics.flush.Observe(time.Since(begun).Seconds())
	if start := a.writer.resumable(at.cursor); len(start) > 0 {
		a.source.Durable(start)
	}
	level := slog.LevelInfo
	if a.env.Terminal {
		level = slog.LevelDebug // the progress bar shows it
	}
	lag, unit := a.source.Lag()
	waiting := slog.Attr{} // omitted
	if unit != "" {
		waiting = slog.Int64("waiting_"+unit, lag)
	}
	a.env.Log.Log(context.Background(), level, "flushed",
		"documents", at.documents, "deletes", at.deletes, "bad_records", at.bad, "at", at.place, waiting)
	return nil
}
