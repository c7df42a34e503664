package docservice

import (
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// Live is what of a segment can still be asked for.
type Live struct {
	Documents   int64
	StoredBytes int64 // compressed; the rest of the segment's is dead
}

// Census counts what is live in each segment, under the number in which it was
// appended, by going once through the index. It works in steps, as the sweep does,
// and rests after each for as long as that took, so that it may be asked for at any
// time: some ten seconds for ten million documents. It holds for the moment of the
// call, if nothing is appended meanwhile: queue.Reader.Usage is exact in any case, and
// reads the whole queue.
func (c *Collection) Census(ctx context.Context) (map[queue.SegmentID]Live, error) {
	return ask(c, func(s *store) (map[queue.SegmentID]Live, error) { return s.census(ctx) })
}

func (s *store) census(ctx context.Context) (map[queue.SegmentID]Live, error) {
	now := s.options.Now()
	counts := make(map[queue.SegmentID]Live)
	var after []byte
	for {
		started := time.Now()
		last, err := s.censusStep(counts, after, now)
		if errors.Is(err, lsm.ErrClosed) {
			err = ErrClosed
		}
		if err != nil || last == nil {
			return counts, err
		}
		after = last
		if !sleep(ctx, time.Since(started)) {
			return nil, ctx.Err()
		}
	}
}

// censusStep counts the next entries behind an id. It returns the last of them, nil
// at the end of the index.
func (s *store) censusStep(counts map[queue.SegmentID]Live, after []byte, now time.Time) (last []byte, err error) {
	it := s.index.NewIter((&ScanOptions{After: after}).bounds())
	defer func() { _ = it.Close() }() // it.Err has told
	for range sweepStepEntries {
		if !it.Next() {
			return nil, it.Err()
		}
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			return nil, err
		}
		if !entry.expired(now) {
			live := counts[entry.address.Segment]
			live.Documents++
			live.StoredBytes += int64(entry.storedBytes)
			counts[entry.address.Segment] = live
		}
		last = append(last[:0], it.Key()...)
	}
	return last, nil
}
