package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// progress is what has been appended, as far as the goroutine that appends has made
// it known. Any may look.
type progress struct {
	mu      sync.Mutex
	reached reached
	flushed int64 // entries acknowledged
}

// reached is how far that has come.
type reached struct {
	documents, deletes int64
	bad                int64  // records that were passed over
	in                 *input // of the last entry; nil before the first
	behind             cursor // behind the last entry
}

func (r *reached) entries() int64 { return r.documents + r.deletes }

// note takes down an entry that has been appended.
func (r *reached) note(in *input, it *item) {
	if it.entry.Delete {
		r.deletes++
	} else {
		r.documents++
	}
	r.in, r.behind = in, it.at
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

func (p *progress) entries() int64 {
	now := p.now()
	return now.entries()
}

// acknowledge takes down that everything up to there is durable. It is false if
// that was known already.
func (p *progress) acknowledge(to reached) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := to.entries() > p.flushed
	p.flushed = max(p.flushed, to.entries())
	return news
}

// flushing flushes every --flush-interval in a goroutine of its own, so that
// reading and appending go on while the disk is waited for.
type flushing struct {
	cancel  context.CancelFunc
	failed  chan error // receives the first error; there is no second one
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

// stop returns when no flush is under way any more.
func (f *flushing) stop() {
	f.cancel()
	f.running.Wait()
}

// flushDurably makes durable what has been appended so far and acknowledges it.
// Any goroutine may call it.
func (a *appender) flushDurably() error {
	at := a.progress.now()
	if err := a.writer.Flush(); err != nil {
		return fmt.Errorf("flushing %s: %w; what was flushed before is safe", a.options.queueDir, err)
	}
	if !a.progress.acknowledge(at) {
		return nil
	}
	level := slog.LevelInfo
	if a.env.Terminal {
		level = slog.LevelDebug // the bar says enough
	}
	a.env.Log.Log(context.Background(), level, "flushed",
		"documents", at.documents, "deletes", at.deletes, "bad_records", at.bad, "input", at.in.name, "line", at.behind.Lines, "offset", at.behind.Offset)
	return nil
}
