package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// progress is the state of appending that other goroutines can read.
type progress struct {
	mu      sync.Mutex
	reached Progress
	flushed int64     // entries acknowledged
	oldest  time.Time // of the entries that may not be durable; zero: not known
}

// Progress is a point that an Appender has reached.
type Progress struct {
	Documents, Deletes int64  // that were appended
	Invalid            int64  // skipped records
	Bytes              int64  // of the source
	Ends               bool   // see Batch.Ends
	Place              string // of the last entry; empty before the first
	Cursor             []byte // after the last entry; not to be changed
	// Oldest is Batch.Oldest of the entries that Flushed is told of for the first time; else zero.
	Oldest time.Time
}

// Entries returns the number of appended entries.
func (p *Progress) Entries() int64 { return p.Documents + p.Deletes }

// count counts an appended entry.
func (p *Progress) count(entry *Record) {
	if entry.Delete {
		p.Deletes++
	} else {
		p.Documents++
	}
}

func (p *progress) publish(to Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = to
}

// appended records that a batch was appended.
func (p *progress) appended(oldest time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.oldest.IsZero() || !oldest.IsZero() && oldest.Before(p.oldest) {
		p.oldest = oldest
	}
}

// takeOldest is now with Oldest, which begins again.
func (p *progress) takeOldest() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.reached
	at.Oldest, p.oldest = p.oldest, time.Time{}
	return at
}

func (p *progress) now() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached
}

// acknowledge records that all entries up to a point are durable. It returns false if that
// was known.
func (p *progress) acknowledge(to Progress) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := to.Entries() > p.flushed
	p.flushed = max(p.flushed, to.Entries())
	return news
}

// flushing flushes every FlushInterval in a separate goroutine, so that reading and
// appending continue during fsync.
type flushing struct {
	cancel  context.CancelFunc
	failed  chan error // receives the first error, after which it stops
	running sync.WaitGroup
}

func (a *Appender) startFlushing() *flushing {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flushing{cancel: cancel, failed: make(chan error, 1)}
	if a.options.FlushInterval > 0 {
		f.running.Go(func() { f.run(ctx, a) })
	}
	return f
}

func (f *flushing) run(ctx context.Context, a *Appender) {
	ticker := time.NewTicker(a.options.FlushInterval)
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
func (a *Appender) flushDurably() error {
	at, begun := a.progress.takeOldest(), time.Now()
	if err := a.to.Writer.Flush(); err != nil {
		return &markedError{fmt.Errorf("flushing %s: %w; earlier flushes are durable", a.options.Queue, err), ErrWriter}
	}
	if !a.progress.acknowledge(at) {
		a.progress.appended(at.Oldest)
		return nil
	}
	if start := a.to.Writer.Resumable(at.Cursor); len(start) > 0 {
		a.source.Durable(start)
	}
	if a.options.Flushed != nil {
		a.options.Flushed(at, time.Since(begun))
	}
	return nil
}
