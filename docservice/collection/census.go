package collection

import (
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/internal/canary"
	"docstore/internal/ctxtime"
	"docstore/lsm"
	"docstore/queue"
)

// Live is the part of a segment that can still be read.
type Live struct {
	Documents   int64
	StoredBytes int64 // compressed; the other bytes of the segment are dead
}

// Census counts the live documents of each segment by scanning the index once; documents of
// a rewrite count for the segment in which they were appended. It works in steps, as the
// sweep does, and pauses after each step for the time the step took: about ten seconds for
// ten million documents. The result is exact for the moment of the call if nothing is
// appended meanwhile; maintain.Measure is always exact, but reads the whole queue.
func (c *Collection) Census(ctx context.Context) (map[queue.SegmentID]Live, error) {
	return ask(c, func(s *store) (map[queue.SegmentID]Live, error) { return s.reader.census(ctx) })
}

func (r *reader) census(ctx context.Context) (map[queue.SegmentID]Live, error) {
	now := r.options.Now()
	counts := make(map[queue.SegmentID]Live)
	var after []byte
	for {
		started := time.Now()
		last, err := r.censusStep(counts, after, now)
		if errors.Is(err, lsm.ErrClosed) {
			err = ErrClosed
		}
		if err != nil || last == nil {
			return counts, err
		}
		after = last
		if !ctxtime.Sleep(ctx, time.Since(started)) {
			return nil, ctx.Err()
		}
	}
}

// censusStep counts the next entries after an id. It returns the last id counted, nil at
// the end of the index.
func (r *reader) censusStep(counts map[queue.SegmentID]Live, after []byte, now time.Time) (last []byte, err error) {
	unsettled := r.unsettled.Load() // before the iterator, as in get
	it := r.index.NewIter(bounds(&docservice.ScanOptions{After: after}))
	defer func() { _ = it.Close() }() // it.Err was checked
	for range sweepStepEntries {
		if !it.Next() {
			return nil, it.Err()
		}
		last = append(last[:0], it.Key()...)
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			return nil, err
		}
		if unsettled.holds(entry.address) {
			switch current, err := r.existing(it.Key(), entry); {
			case errors.Is(err, ErrClosed):
				return nil, err
			case errors.Is(err, docservice.ErrNotFound):
				continue
			case err == nil:
				entry = current
			}
		}
		if !entry.expired(now) {
			live := counts[entry.address.Segment]
			if !canary.Is(it.Key()) {
				live.Documents++
			}
			live.StoredBytes += int64(entry.place.StoredBytes())
			counts[entry.address.Segment] = live
		}
	}
	return last, nil
}
