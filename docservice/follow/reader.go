package follow

import (
	"context"
	"time"

	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// reader reads the record and the manifests of a collection for one goroutine.
type reader interface {
	// load returns the newest record, and when it was read.
	load(ctx context.Context) (publish.Record, time.Time, error)
	manifest(ctx context.Context, ref publish.Ref) (*publish.Manifest, error)
	// increments reads those of a manifest; m is the served part of it.
	increments(m *publish.Manifest) publish.IncrementReader
	// newest returns the number of the newest increment of a manifest, 0 if there is none. The
	// error is errRetargeted if the manifest is not announced any more.
	newest(ctx context.Context, base publish.Ref) (uint64, error)
	// known returns the newest increment of a manifest that is known to exist, 0 if none is. A
	// server that finds no later one was current at a time, unless the reader itself is behind.
	known(base publish.Ref) (number uint64, at time.Time, behind bool)
	// problem returns why others read no increments for this reader; nil: they do, or none have to.
	problem() error
	// watches reports whether wait is woken by a change.
	watches() bool
	// wait is publish.Log.Wait.
	wait(ctx context.Context, increment uint64, pause, limit time.Duration) bool
}

// logReader reads the bucket.
type logReader struct {
	bucket bucket.Bucket
	now    func() time.Time
	log    *publish.Log // nil: not opened yet
	last   keptManifest // that was read
}

func (r *logReader) load(ctx context.Context) (publish.Record, time.Time, error) {
	if r.log == nil {
		log, err := publish.OpenLog(ctx, r.bucket, r.now)
		if err != nil {
			return publish.Record{}, time.Time{}, err
		}
		r.log = log
	}
	record, err := r.log.Load(ctx)
	return record, r.now(), err
}

func (r *logReader) manifest(ctx context.Context, ref publish.Ref) (*publish.Manifest, error) {
	if r.last.ref == ref {
		return r.last.manifest, nil
	}
	m, err := publish.ReadManifest(ctx, r.bucket, ref)
	if err == nil {
		r.last = keptManifest{ref, m}
	}
	return m, err
}

func (r *logReader) increments(m *publish.Manifest) publish.IncrementReader {
	return publish.NewIncrementReader(r.bucket, m)
}

func (r *logReader) newest(ctx context.Context, base publish.Ref) (uint64, error) {
	number, err := publish.NewestIncrement(ctx, r.bucket, base)
	if err != nil {
		return 0, err
	}
	// Increments are deleted only after a later manifest was announced: if none was, the number
	// is right.
	record, _, err := r.load(ctx)
	if err == nil && record.Announced != base {
		err = errRetargeted
	}
	return number, err
}

func (r *logReader) known(publish.Ref) (uint64, time.Time, bool) { return 0, r.now(), false }

func (r *logReader) problem() error { return nil }

func (r *logReader) watches() bool { return r.log != nil && r.log.Watches() }

func (r *logReader) wait(ctx context.Context, increment uint64, pause, limit time.Duration) bool {
	return r.log.Wait(ctx, increment, pause, limit)
}

// feedReader reads what a Feed has read.
type feedReader struct {
	feed *Feed
	seen uint64 // version of the last load
}

func (r *feedReader) load(ctx context.Context) (publish.Record, time.Time, error) {
	for {
		n, _, changed := r.feed.now()
		if n.version > 0 {
			r.seen = n.version
			return n.record, n.read, n.err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return publish.Record{}, time.Time{}, errors.Wrap(ctx.Err(), "read the state of the collection")
		}
	}
}

func (r *feedReader) manifest(ctx context.Context, ref publish.Ref) (*publish.Manifest, error) {
	return r.feed.readManifest(ctx, ref)
}

func (r *feedReader) increments(*publish.Manifest) publish.IncrementReader {
	return feedIncrements{r.feed}
}

// newest waits until the Feed knows the number, or cannot read it.
func (r *feedReader) newest(ctx context.Context, base publish.Ref) (uint64, error) {
	for {
		n, newest, changed := r.feed.now()
		switch {
		case newest.base == base:
			return newest.number, nil
		case n.version != r.seen:
			return 0, errRetargeted
		}
		if err := r.problem(); err != nil {
			return 0, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, errors.Wrap(ctx.Err(), "find the newest increment")
		}
	}
}

func (r *feedReader) known(base publish.Ref) (uint64, time.Time, bool) {
	if _, newest, _ := r.feed.now(); newest.base == base {
		return newest.number, newest.checked, newest.behind
	}
	return 0, time.Time{}, false
}

func (r *feedReader) problem() error { return r.feed.problem() }

func (r *feedReader) watches() bool { return true }

// wait waits for a change of the record or for an increment, for limit at most.
func (r *feedReader) wait(ctx context.Context, increment uint64, _, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		n, newest, changed := r.feed.now()
		switch {
		case n.version != r.seen:
			return true
		case newest.base == n.record.Announced && newest.number > increment:
			return false
		}
		select {
		case <-changed:
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
}
