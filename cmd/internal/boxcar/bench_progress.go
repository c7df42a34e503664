package boxcar

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

// benchProgressInterval is how often the progress line is updated.
const benchProgressInterval = 200 * time.Millisecond

// showCalls counts the calls of a target, and shows their number, the rate and the
// remaining time on the terminal until stop is called.
func showCalls(env *cli.Env, all time.Duration, call target) (counting target, stop func()) {
	var calls atomic.Int64
	var showing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	began := env.Now()
	showing.Go(func() {
		ticker := time.NewTicker(benchProgressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				_, _ = fmt.Fprint(env.Stderr, "\r\x1b[K") // best effort
				return
			case <-ticker.C:
				_, _ = fmt.Fprint(env.Stderr, callsLine(calls.Load(), env.Now().Sub(began), all)) // best effort
			}
		}
	})
	counting = func(ctx context.Context, dst []byte) ([]byte, error) {
		calls.Add(1)
		return call(ctx, dst)
	}
	return counting, func() {
		cancel()
		showing.Wait()
	}
}

// callsLine formats the progress line.
func callsLine(calls int64, elapsed, all time.Duration) string {
	perSecond := int64(0)
	if elapsed > 0 {
		perSecond = int64(float64(calls) / elapsed.Seconds())
	}
	return fmt.Sprintf("\r\x1b[Kmeasuring %s calls, %s/s, %s left", units.FormatCount(calls), units.FormatCount(perSecond), max(all-elapsed, 0).Round(time.Second))
}
