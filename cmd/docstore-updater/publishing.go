package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shardset"
)

const (
	// publishInterval is how often append --publish looks for newly sealed segments, and
	// reads the collection's record.
	publishInterval = time.Second
	// announceInterval is the minimum time between two increments, and lookInterval how often
	// append looks for flushed documents to announce.
	announceInterval = 200 * time.Millisecond
	lookInterval     = 20 * time.Millisecond
	// announceAge is the default of --segment-age with --announce.
	announceAge = 10 * time.Minute
)

// publishing publishes the segments that append seals, and with announce the flushed
// documents in between.
type publishing struct {
	env      *cli.Env
	dir      string
	url      string
	bucket   *store
	announce bool
	breaker  publish.Breaker
	counts   func() publish.Counts // of the records that were read
	seal     func() error          // seals the open segment of the writer

	publisher *publish.Publisher // nil until a segment is sealed, and after a failure
	sealed    []queue.SegmentID  // the last segments that were published, by shard
	checked   time.Time          // when sealed segments and the record were last examined
	announced time.Time          // when the last increment was put
	waiting   string             // why nothing is announced; empty: it is
	held      string             // why the breaker has stopped announcing; empty: it has not
	state     publishingState

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// publishingState is what the metrics show; 0: not known yet.
type publishingState struct {
	published, announced atomic.Uint64 // numbers of manifests
	stopped              atomic.Bool   // nothing is announced
	failing              atomic.Bool   // the last attempt failed
}

// announceBounds are the flags of publish.Breaker.
type announceBounds struct{ deletes, bad, rate float64 }

func (b *announceBounds) addFlags(flags *pflag.FlagSet) {
	flags.Float64Var(&b.deletes, "max-deletes", 50, "with --announce: most deletes, in percent of a minute's entries; 0: no bound")
	flags.Float64Var(&b.bad, "max-bad", 10, "with --announce: most invalid records, in percent of a minute's; 0: no bound")
	flags.Float64Var(&b.rate, "max-rate", 0, "with --announce: most entries a minute, as a multiple of the average; 0: no bound")
}

func (b *announceBounds) valid() bool {
	return b.deletes >= 0 && b.deletes <= 100 && b.bad >= 0 && b.bad <= 100 && (b.rate == 0 || b.rate > 1)
}

// checkTime bounds the time for which append waits for the store before it appends.
const checkTime = 5 * time.Second

// checkPublishable returns an error if the bucket will never accept the queue. Other failures
// are reported, and retried, when there is something to publish.
func checkPublishable(ctx context.Context, b bucket.Bucket, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if _, err := publish.CheckQueue(ctx, b, dir, nil); errors.Is(err, publish.ErrRefused) {
		return err
	}
	return nil
}

// newPublishing returns the publishing of the queue that an Appender writes.
func (o *appendOptions) newPublishing(ctx context.Context, env *cli.Env, writer *shardset.Writer, appender *ingest.Appender, b *store) (*publishing, error) {
	if err := checkPublishable(ctx, b, o.queueDir); err != nil {
		return nil, fmt.Errorf("publish %s to %s: %w", o.queueDir, o.publish, err)
	}
	return &publishing{
		env: env, dir: o.queueDir, url: o.publish, bucket: b, announce: o.announce, seal: writer.Seal,
		breaker: publish.Breaker{MaxDeletes: o.bounds.deletes / 100, MaxBad: o.bounds.bad / 100, MaxRate: o.bounds.rate},
		counts: func() publish.Counts {
			at := appender.Progress()
			return publish.Counts{Documents: at.Documents, Deletes: at.Deletes, Bad: at.Invalid}
		},
	}, nil
}

// start publishes in the background until finish. A failure is logged, and retried:
// appending does not depend on the store.
func (p *publishing) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() { p.run(ctx) })
}

func (p *publishing) run(ctx context.Context) {
	interval := publishInterval
	if p.announce {
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
		case ctx.Err() == nil:
			retry = time.Now().Add(publishInterval)
			if err.Error() != problem {
				problem = err.Error()
				p.env.Log.Warn("publishing failed; retrying", "url", p.url, "error", err)
			}
		}
	}
}

// step publishes new segments and documents.
func (p *publishing) step(ctx context.Context, now time.Time) error {
	due := now.Sub(p.checked) >= publishInterval
	if due {
		p.checked = now
		if err := p.check(ctx, now); err != nil {
			return p.fail(err)
		}
	}
	if !p.announce || p.publisher == nil || p.waiting != "" && !due || now.Sub(p.announced) < announceInterval {
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
		return p.seal()
	}
	return nil
}

// check publishes sealed segments, compares the input with the breaker's bounds, and reads
// the record.
func (p *publishing) check(ctx context.Context, now time.Time) error {
	if err := p.publish(ctx, now); err != nil || !p.announce {
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
func (p *publishing) guard(ctx context.Context, now time.Time) error {
	if !p.announce {
		return nil
	}
	reason := p.breaker.Check(now, p.counts())
	if reason == "" || p.held != "" {
		return nil
	}
	if err := p.publisher.Hold(ctx, reason); err != nil {
		return err
	}
	p.note(reason)
	p.held = reason
	return p.seal()
}

// sealFirst seals the first segments of a queue, because increments follow a manifest.
func (p *publishing) sealFirst() error {
	sealed, open, err := publish.SealedSegments(vfs.OS, p.dir)
	if err != nil || anySealed(sealed) {
		return nil //nolint:nilerr // without a head there is nothing to seal
	}
	// The heads of shards may be older than the entries.
	if read := p.counts(); open || read.Documents+read.Deletes > 0 {
		return p.seal()
	}
	return nil
}

func anySealed(sealed []queue.SegmentID) bool {
	return slices.ContainsFunc(sealed, func(n queue.SegmentID) bool { return n > 0 })
}

// note logs why nothing is announced, and that announcing continues.
func (p *publishing) note(reason string) {
	switch {
	case reason == p.waiting:
		return
	case reason != "":
		p.env.Log.Error("announcing has stopped; appending and publishing continue. Validate and announce the newest manifest to resume", "url", p.url, "reason", reason)
	default:
		p.env.Log.Info("announcing continues", "url", p.url)
		p.held = ""
		p.breaker.Reset(p.counts())
	}
	p.waiting = reason
	p.state.stopped.Store(reason != "")
}

// fail closes the publisher after an error: another one may have taken over.
func (p *publishing) fail(err error) error {
	if err == nil || p.publisher == nil {
		return err
	}
	err = errors.Join(err, p.publisher.Close())
	p.publisher = nil
	return err
}

// publish publishes the sealed segments, if there are new ones, and announces them unless
// the input is outside the bounds.
func (p *publishing) publish(ctx context.Context, now time.Time) error {
	sealed, _, err := publish.SealedSegments(vfs.OS, p.dir)
	unchanged := slices.Equal(sealed, p.sealed) && (p.publisher != nil || !p.announce)
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
		options := &publish.Options{Now: p.env.Now, Stream: p.announce}
		if p.publisher, err = publish.OpenPublisher(ctx, p.bucket, p.dir, options); err != nil {
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
	if err != nil {
		return err
	}
	p.sealed = sealed
	p.state.published.Store(published.Ref.Number)
	if published.Announced {
		p.state.announced.Store(published.Ref.Number)
	}
	if published.New {
		p.env.Log.Info("published", "url", p.url, "manifest", published.Ref.Number, "bytes", published.Uploaded, "announced", published.Announced)
	}
	return nil
}

// sealAll seals the segments of all shards when one was sealed: a manifest for each of them
// would be one for each shard, and would end them at different records. opened: the publisher was
// opened, so the announced documents are not known, and a manifest must include them.
func (p *publishing) sealAll(sealed []queue.SegmentID, opened bool) ([]queue.SegmentID, error) {
	if len(sealed) == 1 && (!opened || !p.announce) {
		return sealed, nil
	}
	if err := p.seal(); err != nil {
		return nil, err
	}
	sealed, _, err := publish.SealedSegments(vfs.OS, p.dir)
	return sealed, err
}

// stop ends the publishing in the background.
func (p *publishing) stop() {
	p.cancel()
	p.running.Wait()
}

// finish publishes the last segments, after stop and after the writer was closed.
func (p *publishing) finish(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	p.seal = func() error { return nil } // closing the writer has sealed it
	err := p.publish(ctx, time.Now())
	if err == nil && p.announce && p.publisher != nil {
		var record publish.Record
		record, err = p.publisher.Check(ctx)
		p.held = record.Held
	}
	if err = p.fail(err); p.publisher != nil {
		err = errors.Join(err, p.publisher.Close())
	}
	switch {
	case err != nil:
		return fmt.Errorf("the documents are in %s but are not published: %w; run docstore-updater publish", p.dir, err)
	case p.held != "":
		return fmt.Errorf("the documents are published to %s but are not announced: %s; validate and announce the newest manifest", p.url, p.held)
	}
	return nil
}
