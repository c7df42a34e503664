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
	return publish.ReadManifest(ctx, r.bucket, ref)
}

func (r *logReader) increments(m *publish.Manifest) publish.IncrementReader {
	return publish.NewIncrementReader(r.bucket, m)
}

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
