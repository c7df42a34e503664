// Package virtualtime runs tests on the virtual time of testing/synctest.
package virtualtime

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"docstore/internal/race"
)

// Test runs f as [synctest.Test] does and, under the race detector, on one processor.
//
// A goroutine that looks at a timer's channel sends what is due on it by itself, in
// the one race context that all timers of a bubble share (runtime.timer.unlockAndRun,
// Go 1.25 and 1.26). Two that do so at once leave that context's stack below its start,
// and the process dies inside the race detector: eight goroutines that poll 200 tickers
// each do it within milliseconds, fifty gossip members with a ticker or two each did it
// once in CI. With one processor no two are at it at once.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if race.Enabled {
		takeOneProcessor()
		defer giveBackProcessors()
	}
	synctest.Test(t, f)
}

// Parallel tests share the one processor; the last to end gives the others back.
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
