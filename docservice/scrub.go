package docservice

import (
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// The scrub reads the whole index over and over, slowly, and verifies it: damage should be
// known before a lookup needs the damaged block, so that the index is rebuilt in time
// (succession.go). Each pass begins when the tail has nothing to read. A read error counts
// as damage.

// ScrubState is how far the scrub of the index is.
type ScrubState struct {
	Passes uint64    // that have read all of it and found nothing, since the collection was opened
	Bytes  uint64    // of its tables that were verified since then
	Ended  time.Time // when the last such pass did; zero: none has
}

// runScrub scrubs until the store is stopped.
func (s *store) runScrub(ctx context.Context) {
	for s.waitUntil(ctx, s.tailRests) == nil {
		if err := s.scrub(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, lsm.ErrClosed) {
			s.recordFault(indexError(err), queue.Address{})
		}
		if !sleep(ctx, s.options.ScrubInterval) {
			return
		}
	}
}

// scrub is one pass.
func (s *store) scrub(ctx context.Context) error {
	select {
	case s.options.ScrubTurn <- struct{}{}:
		defer func() { <-s.options.ScrubTurn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	counters := &s.collection.scrub
	err := s.index.Scrub(ctx, s.options.ScrubBytesPerSecond, func(bytes int64) { counters.bytes.Add(uint64(bytes)) })
	if err == nil {
		counters.passes.Add(1)
		counters.ended.Store(s.options.Now().UnixMilli())
	}
	return err
}

// scrubState describes the scrub.
func (c *Collection) scrubState() ScrubState {
	state := ScrubState{Passes: c.scrub.passes.Load(), Bytes: c.scrub.bytes.Load()}
	if ended := c.scrub.ended.Load(); ended != 0 {
		state.Ended = time.UnixMilli(ended)
	}
	return state
}
