// Package virtualtime runs tests in the virtual time of testing/synctest.
package virtualtime

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"docstore/internal/race"
)

// Test runs f like [synctest.Test] and, under the race detector, on one processor.
//
// A goroutine that polls a timer's channel runs the timer itself, in a race context
// shared by all timers of a bubble (runtime.timer.unlockAndRun, Go 1.25 and 1.26). Two
// goroutines doing so concurrently corrupt that context, and the process crashes in the
// race detector: eight goroutines that poll 200 tickers each cause it within
// milliseconds, and fifty gossip members with one or two tickers each caused it once in
// CI. On one processor they do not run concurrently.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if race.Enabled {
		takeOneProcessor()
		defer giveBackProcessors()
	}
	synctest.Test(t, f)
}

// Parallel tests share the processor; the last one restores GOMAXPROCS.
var processors struct {
	sync.Mutex
	tests, before int
}

func takeOneProcessor() {
	processors.Lock()
	defer processors.Unlock()
	if processors.tests == 0 {
		processors.before = runtime.GOMAXPROCS(1)
	}
	processors.tests++
}

func giveBackProcessors() {
	processors.Lock()
	defer processors.Unlock()
	if processors.tests--; processors.tests == 0 {
		runtime.GOMAXPROCS(processors.before)
	}
}
