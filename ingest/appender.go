package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"docstore/queue"
)

// Options configure an Appender.
type Options struct {
	Queue string // name of the queue, for messages
	// Parsing is that of each source: see Batch.Source. The default is one with the defaults.
	Parsing []Parsing
	// Rate is the maximum number of records a second; 0: no limit.
	Rate float64
	// FlushInterval and FlushEvery are the maximum time, and the maximum number of entries,
	// until an entry is flushed; 0: no limit. Run flushes at its end in any case.
	FlushInterval time.Duration
	FlushEvery    int
	// CanaryInterval is the time between two canaries of each shard, documents that tell servers how
	// long entries take: see package canary. They are no records of the source. 0: there are none.
	CanaryInterval time.Duration
	// SkipInvalid skips invalid records; without it the first one is an error.
	SkipInvalid bool
	// DeadLetters keeps the skipped records; nil: they are only logged.
	DeadLetters *DeadLetters
	// EventTime returns the time of the event of a document, zero if it is not known, which
	// replaces Batch.Oldest; nil: that is used.
	EventTime func(document []byte) time.Time
	// Appended is called after each batch by the goroutine of Run; nil: it is not.
	Appended func(Progress)
	// Flushed is called when entries became durable, with the duration of the flush; nil: it
	// is not. Any goroutine may call it.
	Flushed func(at Progress, took time.Duration)
	Logger  *slog.Logger     // of skipped records; the default discards
	Now     func() time.Time // for the dead letters, Rate and canaries; the default is time.Now
}

// Appender moves records from a source into a set of shards. Progress is safe for concurrent use.
type Appender struct {
	source  Source
	to      *CatchUp
	options Options

	progress  progress
	reached   Progress // ahead of what progress knows, within a batch
	unflushed int      // entries since the last flush by FlushEvery
	encoded   []byte   // the cursor, for the writer
	pace      *pace    // nil: no limit
	canaries  canaries
}

// NewAppender returns an Appender. ends says whether the source ends, before its first batch: see
// Batch.Ends.
func NewAppender(from Source, ends bool, to *CatchUp, options Options) *Appender {
	if options.Parsing == nil {
		options.Parsing = []Parsing{{}}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	a := &Appender{source: from, to: to, options: options}
	a.reached.Ends = ends
	a.progress.publish(a.reached)
	if options.Rate > 0 {
		a.pace = &pace{interval: time.Duration(float64(time.Second) / options.Rate)}
	}
	return a
}

// Progress returns the point that appending has reached.
func (a *Appender) Progress() Progress { return a.progress.now() }

// Run's errors match one of these, unless the source failed.
var (
	ErrInterrupted = errors.New("interrupted") // the context ended before the source
	ErrInvalid     = errors.New("invalid record")
	ErrDeadLetters = errors.New("an invalid record cannot be kept")
	// ErrWriter matches an error of the writer: earlier flushes are durable, and entries after
	// them may be lost.
	ErrWriter = errors.New("the writer failed")
)

// markedError is an error that also matches a sentinel.
type markedError struct {
	error
	mark error
}

func (e *markedError) Is(target error) bool { return target == e.mark }
func (e *markedError) Unwrap() error        { return e.error }

// Run appends all records. It is called once. In any case it flushes everything appended, unless
// the writer failed.
func (a *Appender) Run(ctx context.Context) error {
	p := newProducer(a.source, a.options.Parsing)
	stop := p.start(ctx)
	defer stop()
	defer a.startCanaries()()

	flushing := a.startFlushing()
	err := a.consume(ctx, p, flushing.failed)
	flushing.stop()
	if errors.Is(err, ErrWriter) {
		return err
	}
	if failed := a.flush(); failed != nil {
		return failed
	}
	return err
}

// consume appends what the producer sends until it ends, ctx does, or a flush
// fails.
func (a *Appender) consume(ctx context.Context, p *producer, flushFailed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case err := <-flushFailed:
			return err
		case <-a.canaries.due:
			if err := a.putCanaries(); err != nil {
				return err
			}
		case b, more := <-p.filled:
			if !more && !p.complete {
				return ErrInterrupted
			}
			if !more {
				if err := a.to.End(); err != nil {
					return &markedError{fmt.Errorf("catching up in %s: %w", a.options.Queue, err), ErrWriter}
				}
				return nil
			}
			if b.err != nil {
				return b.err
			}
			<-b.parsed // soon: parsers do not block
			if err := a.appendBatch(ctx, b.Batch); err != nil {
				return err
			}
			if b.Release != nil {
				b.Release()
			}
		}
	}
}

func (a *Appender) appendBatch(ctx context.Context, b *Batch) error {
	if err := a.keepInvalid(b); err != nil {
		return err
	}
	if b.FlushBefore {
		if err := a.flush(); err != nil {
			return err
		}
	}
	a.reached.Ends = b.Ends
	last, oldest := -1, b.Oldest
	if a.options.EventTime != nil {
		oldest = a.oldestEvent(b)
	}
	defer func() {
		a.canaries.read(oldest, a.options.Now())
		a.progress.appended(oldest) // after the entries: a flush meanwhile is not the last one of them
		a.reach(b, last)
	}()
	for i := range b.Records {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		if a.pace != nil && !a.pace.wait(ctx, a.options.Now()) {
			return ErrInterrupted
		}
		if err := a.putDueCanaries(); err != nil {
			return err
		}
		if err := a.appendRecord(b, i); err != nil {
			return err
		}
		if b.Records[i].Problem == nil {
			last = i
		}
	}
	a.reached.Bytes += b.Bytes
	if a.options.Appended != nil {
		a.options.Appended(a.reached)
	}
	return nil
}

// oldestEvent returns the time of the oldest event of a batch; zero: none is known.
func (a *Appender) oldestEvent(b *Batch) (oldest time.Time) {
	for i := range b.Records {
		r := &b.Records[i]
		if r.Problem != nil || r.Delete {
			continue
		}
		if at := a.options.EventTime(r.Document); !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return oldest
}

func (a *Appender) appendRecord(b *Batch, i int) error {
	r := &b.Records[i]
	if r.Problem != nil {
		return a.skip(b, i)
	}
	has, err := a.to.Has(b, i)
	if has && err == nil {
		return nil
	}
	record := queue.Record{ID: r.ID, Document: r.Document, Expires: r.Expires, Delete: r.Delete}
	if a.encoded = b.AppendCursor(a.encoded[:0], i); len(a.encoded) > 0 {
		record.Cursor = a.encoded
	}
	if err == nil {
		err = a.to.Put(record)
	}
	if err != nil {
		return &markedError{fmt.Errorf("appending %s to %s: %w", b.Place(i), a.options.Queue, err), ErrWriter}
	}
	a.reached.count(r)
	a.unflushed++
	if every := a.options.FlushEvery; every > 0 && a.unflushed >= every {
		a.reach(b, i)
		return a.flush()
	}
	return nil
}

// reach publishes the progress up to an entry of a batch; -1: the batch before.
func (a *Appender) reach(b *Batch, i int) {
	if i >= 0 {
		a.reached.Place, a.reached.Cursor = b.Place(i), b.AppendCursor(nil, i)
	}
	a.progress.publish(a.reached)
}

// skip skips an invalid record, or returns the error that stops Run.
func (a *Appender) skip(b *Batch, i int) error {
	problem := b.Records[i].Problem
	if !a.options.SkipInvalid {
		return &markedError{fmt.Errorf("%s: %w", b.Place(i), problem), ErrInvalid}
	}
	a.reached.Invalid++
	if a.options.DeadLetters == nil {
		a.options.Logger.Warn("skipped an invalid record", "at", b.Place(i), "problem", problem.Error())
	}
	return nil
}

// keepInvalid makes the invalid records of a batch durable in the dead-letter file, before any
// record of the batch is appended.
func (a *Appender) keepInvalid(b *Batch) error {
	letters := a.options.DeadLetters
	if letters == nil {
		return nil
	}
	first, count := -1, 0
	for i := range b.Records {
		r := &b.Records[i]
		if r.Problem == nil {
			continue
		}
		if err := letters.add(a.options.Now(), b.Place(i), r); err != nil {
			return fmt.Errorf("keeping the invalid record %s: %w", b.Place(i), err)
		}
		if count++; first < 0 {
			first = i
		}
	}
	if count == 0 {
		return nil
	}
	if err := letters.sync(); err != nil {
		return &markedError{fmt.Errorf("keeping invalid records in %s: %w", letters.path, err), ErrDeadLetters}
	}
	a.options.Logger.Warn("invalid records were kept in the dead-letter file", "records", count, "first", b.Place(first),
		"problem", b.Records[first].Problem.Error(), "file", letters.path)
	return nil
}

// flush is flushDurably in the goroutine of Run.
func (a *Appender) flush() error {
	a.unflushed = 0
	return a.flushDurably()
}
