package collection

import (
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/ctxtime"
	"docstore/lsm"
	"docstore/queue"
)

// The scrub reads and verifies the whole index continuously at a low rate, to find damage
// before a lookup needs the damaged block; the index is then rebuilt (replacement.go). Each
// pass begins when the tail has caught up. A read error counts as damage.

// scrubber verifies the index.
type scrubber struct{ *shared }

// ScrubState is the progress of the scrub of the index.
type ScrubState struct {
	Passes uint64    // complete passes without damage since the collection was opened
	Bytes  uint64    // of tables verified since then
	Ended  time.Time // end of the last such pass; zero: none yet
}

// runScrub scrubs until the store is stopped.
func (c *scrubber) runScrub(ctx context.Context) {
	for c.health.waitUntil(ctx, c.health.tailIdle) == nil {
		if err := c.scrub(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, lsm.ErrClosed) {
			c.recordFault(indexError(err), queue.Address{})
		}
		if !ctxtime.Sleep(ctx, c.options.ScrubInterval) {
			return
		}
	}
}

// scrub runs one pass.
func (c *scrubber) scrub(ctx context.Context) error {
	select {
	case c.options.ScrubSemaphore <- struct{}{}:
		defer func() { <-c.options.ScrubSemaphore }()
	case <-ctx.Done():
		return ctx.Err()
	}
	counters := &c.collection.scrub
	err := c.index.Scrub(ctx, c.options.ScrubBytesPerSecond, func(bytes int64) { counters.bytes.Add(uint64(bytes)) })
	if err == nil {
		counters.passes.Add(1)
		counters.ended.Store(c.options.Now().UnixMilli())
	}
	return err
}

// scrubState returns the progress of the scrub.
func (c *Collection) scrubState() ScrubState {
	state := ScrubState{Passes: c.scrub.passes.Load(), Bytes: c.scrub.bytes.Load()}
	if ended := c.scrub.ended.Load(); ended != 0 {
		state.Ended = time.UnixMilli(ended)
	}
	return state
}
