package simulate

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"docstore/internal/ctxtime"
)

// clock is the wall clock of a host. It is wrong by up to Config.Clocks, and steps.
type clock struct{ offset, lowest atomic.Int64 } // in seconds; lowest is the lowest offset so far

// run steps the clock until ctx ends.
func (c *clock) run(ctx context.Context, w *world, name string) {
	most := int(w.config.Clocks / time.Second)
	for ctx.Err() == nil {
		d := w.chance.Next("clock of " + name)
		c.offset.Store(int64(d.Between(-most, most)))
		c.lowest.Store(min(c.lowest.Load(), c.offset.Load()))
		w.log.add(name, "the clock is wrong by %d s", c.offset.Load())
		ctxtime.Sleep(ctx, d.Duration(5*time.Second, time.Minute))
	}
}

// ahead returns how far the clock is ahead.
func (c *clock) ahead() time.Duration { return time.Duration(c.offset.Load()) * time.Second }

// mostBehind returns how far the clock has been behind.
func (c *clock) mostBehind() time.Duration { return -time.Duration(c.lowest.Load()) * time.Second }

// bubbleStart is when the monotonic clock of clock.now begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour)

// now returns the time of the wall clock with a reading of the monotonic clock, which does not step.
// In a bubble time.Now has no such reading.
func (c *clock) now() time.Time {
	const (
		hasMonotonic = 1 << 63
		nanosecond   = 30          // bits
		epoch        = -2682288000 // 1885 in Unix time
	)
	now := time.Now()
	wall := now.Unix() + c.offset.Load() - epoch
	t := time.Unix(0, 0)
	fields := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	fields.wall = hasMonotonic | uint64(wall)<<nanosecond | uint64(now.Nanosecond())
	fields.ext = int64(now.Sub(bubbleStart))
	return t
}
