package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
)

const (
	// liveInterval is how often a Live looks for newly sealed segments, and reads the
	// collection's record.
	liveInterval = time.Second
	// announceInterval is the minimum time between two increments, and lookInterval how often
	// a Live looks for flushed documents to announce.
	announceInterval = 200 * time.Millisecond
	lookInterval     = 20 * time.Millisecond
)

// LiveOptions configure a Live.
type LiveOptions struct {
	FS  vfs.FS // of the queue; the default is vfs.OS
	URL string // of the bucket, for messages
	// Announce announces the published segments, and flushed documents in between, until the
	// Counts of the records that were read are outside the bounds of Breaker.
	Announce bool
	Breaker  Breaker
	Counts   func() Counts
	Seal     func() error // seals the open segments of the writer
	Logger   *slog.Logger
	Now      func() time.Time // the default is time.Now
	// Problem returns why the store does not answer now; nil: it does. The default is that it
	// is not known before an attempt to publish has failed.
	Problem func() error
}

// queueOptions returns the options for the queue.
func (o *LiveOptions) queueOptions() *Options {
	return &Options{FS: o.FS, Now: o.Now, Stream: o.Announce}
}

// Live publishes a queue while it is written. A failure is logged, and retried: appending does
// not depend on the store. If another process announces or pins a manifest, it only publishes. If
// another publisher takes over, it ends: it never takes the collection back, because that one has
// the newer entries.
//
//	live, err := NewLive(ctx, b, dir, options)
//	live.Start(ctx, fenced)
//	... // append, until fenced is called
//	live.Stop()
//	err = writer.Close()
//	err = live.Finish(ctx)
type Live struct {
	dir     string
	bucket  bucket.Bucket
	options LiveOptions

	publisher *Publisher        // nil until a segment is sealed, and after a failure
	sealed    []queue.SegmentID // the last segments that were published, by shard
	checked   time.Time         // when sealed segments and the record were last examined
	announced time.Time         // when the last increment was put
	waiting   string            // why nothing is announced; empty: it is
	held      string            // why the breaker has stopped announcing; empty: it has not
	fenced    error             // another publisher has taken over; nil: none has
	state     liveState

	cancel  context.CancelFunc
	running sync.WaitGroup
}

type liveState struct {
	published, announced atomic.Uint64
	stopped, failing     atomic.Bool
}

// LiveState is the state of a Live.
type LiveState struct {
	Published, Announced uint64 // numbers of manifests; 0: not known yet
	Stopped              bool   // nothing is announced; see the log
	Failing              bool   // the last attempt failed, or the store does not answer
}

// State returns the state. Any goroutine may call it.
func (p *Live) State() LiveState {
	s := &p.state
	failing := s.failing.Load() || p.options.Problem != nil && p.options.Problem() != nil
	return LiveState{s.published.Load(), s.announced.Load(), s.stopped.Load(), failing}
}

// checkTime bounds the time for which NewLive waits for the store.
const checkTime = 5 * time.Second

// NewLive returns a Live of the queue in dir. It fails if the bucket will never accept the queue.
// Other failures are reported, and retried, when there is something to publish.
func NewLive(ctx context.Context, b bucket.Bucket, dir string, options LiveOptions) (*Live, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if options.FS == nil {
		options.FS = vfs.OS
	}
	if _, err := CheckQueue(ctx, b, dir, options.queueOptions()); errors.Is(err, ErrRefused) {
		return nil, fmt.Errorf("publish %s to %s: %w", dir, options.URL, err)
	}
	return &Live{dir: dir, bucket: b, options: options}, nil
}

// Start publishes in the background until Stop. When another publisher takes over, nothing is
// published any more, fenced is called once, and Finish returns the error.
func (p *Live) Start(ctx context.Context, fenced func()) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() {
		if p.run(ctx); p.fenced != nil {
			p.options.Logger.Error("publishing has ended", "url", p.options.URL, "error", p.fenced)
			fenced()
		}
	})
}

// run publishes until ctx ends, or another publisher takes over.
func (p *Live) run(ctx context.Context) {
	interval := liveInterval
	if p.options.Announce {
		interval = lookInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	problem, retry := "", time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if time.Now().Before(retry) {
			continue
		}
		err := p.step(ctx, time.Now())
		p.state.failing.Store(err != nil && ctx.Err() == nil)
		switch {
		case err == nil:
			problem = ""
		case errors.Is(err, ErrFenced):
			p.fenced = err
			return
		case ctx.Err() == nil:
			retry = time.Now().Add(liveInterval)
			if err.Error() != problem {
				problem = err.Error()
				p.options.Logger.Warn("publishing failed; retrying", "url", p.options.URL, "error", err)
			}
		}
	}
}

// step publishes new segments and documents.
func (p *Live) step(ctx context.Context, now time.Time) error {
	due := now.Sub(p.checked) >= liveInterval
	if due {
		p.checked = now
		if err := p.check(ctx, now); err != nil {
			return p.fail(err)
		}
	}
	if !p.options.Announce || p.publisher == nil || p.waiting != "" && !due || now.Sub(p.announced) < announceInterval {
		return nil
	}
	extended, err := p.publisher.Extend(ctx)
	if err != nil {
		return p.fail(err)
	}
	p.note(extended.Reason)
	if extended.Bytes > 0 {
		p.announced = now
	}
	switch {
	case extended.Sealed:
		return p.fail(p.publish(ctx, now))
	case extended.Full && due:
		return p.options.Seal()
	}
	return nil
}

// check publishes sealed segments, compares the input with the breaker's bounds, and reads
// the record.
func (p *Live) check(ctx context.Context, now time.Time) error {
	if err := p.publish(ctx, now); err != nil || !p.options.Announce {
		return err
	}
	if p.publisher == nil {
		return p.sealFirst()
	}
	record, err := p.publisher.Check(ctx)
	if err == nil {
		p.state.published.Store(record.Head.Number)
		p.state.announced.Store(record.Announced.Number)
	}
	return err
}

// guard stops announcing if the input is outside the breaker's bounds. It seals the segment,
// so that the next manifest can be validated and announced by hand.
func (p *Live) guard(ctx context.Context, now time.Time) error {
	if !p.options.Announce {
		return nil
	}
	reason := p.options.Breaker.Check(now, p.options.Counts())
	if reason == "" || p.held != "" {
		return nil
	}
	if err := p.publisher.Hold(ctx, reason); err != nil {
		return err
	}
	p.note(reason)
	p.held = reason
	return p.options.Seal()
}

// sealFirst seals the first segments of a queue, because increments follow a manifest.
func (p *Live) sealFirst() error {
	sealed, open, err := SealedSegments(p.options.FS, p.dir)
	if err != nil || anySealed(sealed) {
		return nil //nolint:nilerr // without a head there is nothing to seal
	}
	// The heads of shards may be older than the entries.
	if read := p.options.Counts(); open || read.Documents+read.Deletes > 0 {
		return p.options.Seal()
	}
	return nil
}

func anySealed(sealed []queue.SegmentID) bool {
	return slices.ContainsFunc(sealed, func(n queue.SegmentID) bool { return n > 0 })
}

// note logs why nothing is announced, and that announcing continues.
func (p *Live) note(reason string) {
	switch {
	case reason == p.waiting:
		return
	case reason != "":
		p.options.Logger.Error("announcing has stopped; appending and publishing continue. Validate and announce the newest manifest to resume", "url", p.options.URL, "reason", reason)
	default:
		p.options.Logger.Info("announcing continues", "url", p.options.URL)
		p.held = ""
		p.options.Breaker.Reset(p.options.Counts())
	}
	p.waiting = reason
	p.state.stopped.Store(reason != "")
}

// fail closes the publisher after an error: another one may have taken over.
func (p *Live) fail(err error) error {
	if err == nil || p.publisher == nil {
		return err
	}
	err = errors.Join(err, p.publisher.Close())
	p.publisher = nil
	return err
}

// publish publishes the sealed segments, if there are new ones, and announces them unless
// the input is outside the bounds.
func (p *Live) publish(ctx context.Context, now time.Time) error {
	sealed, _, err := SealedSegments(p.options.FS, p.dir)
	unchanged := slices.Equal(sealed, p.sealed) && (p.publisher != nil || !p.options.Announce)
	switch {
	case err != nil:
		return err
	case !anySealed(sealed):
		return nil
	case unchanged:
		return p.guard(ctx, now)
	}
	opened := p.publisher == nil
	if opened {
		if p.publisher, err = OpenPublisher(ctx, p.bucket, p.dir, p.options.queueOptions()); err != nil {
			p.publisher = nil
			return err
		}
	}
	if sealed, err = p.sealAll(sealed, opened); err != nil {
		return err
	}
	if err := p.guard(ctx, now); err != nil {
		return err
	}
	published, err := p.publisher.Publish(ctx)
	if open := (*unsealedError)(nil); errors.As(err, &open) { // compact has run since
		if sealed, err = p.seal(); err == nil {
			published, err = p.publisher.Publish(ctx)
		}
	}
	if err != nil {
		return err
	}
	p.sealed = sealed
	p.state.published.Store(published.Ref.Number)
	if published.Announced {
		p.state.announced.Store(published.Ref.Number)
	}
	if published.New {
		p.options.Logger.Info("published", "url", p.options.URL, "manifest", published.Ref.Number, "bytes", published.Uploaded, "announced", published.Announced)
	}
	return nil
}

// sealAll seals the segments of all shards when one was sealed: a manifest for each of them
// would be one for each shard, and would end them at different records. opened: the publisher was
// opened, so the announced documents are not known, and a manifest must include them.
func (p *Live) sealAll(sealed []queue.SegmentID, opened bool) ([]queue.SegmentID, error) {
	if len(sealed) == 1 && (!opened || !p.options.Announce) {
		return sealed, nil
	}
	return p.seal()
}

// seal seals the open segments, and returns the last sealed ones.
func (p *Live) seal() ([]queue.SegmentID, error) {
	if err := p.options.Seal(); err != nil {
		return nil, err
	}
	sealed, _, err := SealedSegments(p.options.FS, p.dir)
	return sealed, err
}

// Stop ends the publishing in the background.
func (p *Live) Stop() {
	p.cancel()
	p.running.Wait()
}

// Finish publishes the last segments, after Stop and after the writer was closed. Its error matches
// ErrFenced if another publisher has taken over.
func (p *Live) Finish(ctx context.Context) error {
	if p.fenced != nil {
		return p.fencedError(p.fenced)
	}
	ctx = context.WithoutCancel(ctx)
	p.options.Seal = func() error { return nil } // closing the writer has sealed it
	err := p.publish(ctx, time.Now())
	if err == nil && p.options.Announce && p.publisher != nil {
		var record Record
		record, err = p.publisher.Check(ctx)
		p.held = record.Held
	}
	if err = p.fail(err); p.publisher != nil {
		err = errors.Join(err, p.publisher.Close())
	}
	switch {
	case errors.Is(err, ErrFenced):
		return p.fencedError(err)
	case err != nil:
		return fmt.Errorf("the documents are in %s but are not published: %w; run docstore-updater publish", p.dir, err)
	case p.held != "":
		return fmt.Errorf("the documents are published to %s but are not announced: %s; validate and announce the newest manifest", p.options.URL, p.held)
	}
	return nil
}

// fencedError says what to do after another publisher has taken over.
func (p *Live) fencedError(err error) error {
	return fmt.Errorf("the newest documents are in %s but are not published to %s: %w; only one updater may publish there: keep this one stopped, or stop the other updater and start this one again, if its queue has everything that was published", p.dir, p.options.URL, err)
}
