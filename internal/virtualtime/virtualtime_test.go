package virtualtime_test

import (
	"testing"
	"time"

	"docstore/internal/virtualtime"
)

// TestConcurrentTimerPolls crashes under the race detector if the timers of a bubble
// are polled concurrently.
func TestConcurrentTimerPolls(t *testing.T) {
	const goroutines, tickers, looks = 8, 200, 300
	virtualtime.Test(t, func(*testing.T) {
		for range goroutines {
			go func() {
				var due [tickers]*time.Ticker
				for n := range due {
					due[n] = time.NewTicker(time.Millisecond)
				}
				for range looks {
					time.Sleep(time.Millisecond)
					for _, ticker := range due {
						select {
						case <-ticker.C:
						default:
						}
					}
				}
			}()
		}
		time.Sleep((looks + 1) * time.Millisecond)
	})
}
