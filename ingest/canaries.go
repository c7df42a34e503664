package ingest

import (
	"fmt"
	"time"

	"docstore/internal/canary"
	"docstore/queue"
)

// canaries puts a canary into each shard at an interval. Only the goroutine of Run uses it.
type canaries struct {
	due <-chan time.Time // nil: there are none
	ids [][]byte         // of the shards
	// sourceAge is the age of the oldest event of the newest batch since the last canary; 0: it is
	// not known.
	sourceAge time.Duration
}

// startCanaries starts the interval, if there are canaries. The function that it returns ends it.
func (a *Appender) startCanaries() (stop func()) {
	if a.options.CanaryInterval <= 0 {
		return func() {}
	}
	layout := a.to.Writer.Layout()
	ticker := time.NewTicker(a.options.CanaryInterval)
	a.canaries = canaries{due: ticker.C, ids: canary.IDs(layout.Shards, layout.Shard)}
	return ticker.Stop
}

// read notes the oldest event of a batch that was appended.
func (c *canaries) read(oldest, now time.Time) {
	if c.sourceAge = 0; !oldest.IsZero() {
		c.sourceAge = max(0, now.Sub(oldest))
	}
}

// putCanaries puts a canary into each shard. They have no cursor: a block with a canary has that of
// the last record of its shard, so that the same records are read again after a crash as without.
func (a *Appender) putCanaries() error {
	now := a.options.Now()
	for _, id := range a.canaries.ids {
		d := canary.New(string(id), now)
		d.SourceAgeSeconds = a.canaries.sourceAge.Seconds()
		document, err := d.Encode()
		if err == nil {
			err = a.to.Put(queue.Record{ID: id, Document: document, Expires: d.Expires})
		}
		if err != nil {
			return &markedError{fmt.Errorf("appending a canary to %s: %w", a.options.Queue, err), ErrWriter}
		}
	}
	a.canaries.sourceAge = 0
	return nil
}

// putDueCanaries puts canaries between two records, if they are due.
func (a *Appender) putDueCanaries() error {
	select {
	case <-a.canaries.due:
		return a.putCanaries()
	default:
		return nil
	}
}
