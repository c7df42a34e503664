package turns

import (
	"sync/atomic"
	"time"
)

// A Turn is the right to read one connection. The leader is the goroutine that has it.
//
// Invariants:
//
//   - Only the leader uses number.
//   - running is 0 unless the leader runs a handler; then it is the number of that run, and
//     no two runs have the same number. The goroutine that swaps it back to 0 has the turn:
//     the leader after the handler, or the monitor for a follower. The other one finds it
//     changed and no longer uses the turn.
type Turn struct {
	follow func() // starts a follower
	number uint64

	running   atomic.Uint64
	crowded   atomic.Bool // requests have waited behind others since the last tick
	monitored atomic.Bool // the monitor checks the turn
	seen      uint64      // running at the last tick; used by the monitor only
	idle      int         // ticks without a handler; used by the monitor only
}

// Init sets the function that makes another goroutine the leader, before the first use.
func (t *Turn) Init(follow func()) { t.follow = follow }

// Begin marks the leader as running a handler: from here on a follower may have the turn.
// crowded says that more requests have arrived behind the handler's.
func (t *Turn) Begin(m *Monitor, crowded bool) (number uint64) {
	t.number++
	number = t.number
	if crowded && !t.crowded.Load() {
		t.crowded.Store(true)
		m.shortenTick()
	}
	t.running.Store(number)
	if !t.monitored.Load() {
		m.add(t)
	}
	return number
}

// End ends the run of a handler and reports whether the caller still has the turn.
func (t *Turn) End(number uint64) (leads bool) { return t.running.CompareAndSwap(number, 0) }

// check gives the turn to a follower if the leader has been in the same handler since the
// last tick. It reports whether the connection stays monitored.
func (t *Turn) check(m *Monitor) bool {
	number := t.running.Load()
	if number != 0 {
		if number == t.seen && t.running.CompareAndSwap(number, 0) {
			m.noteLong(time.Now())
			t.follow()
		}
		t.seen, t.idle = number, 0
		return true
	}
	t.idle++
	if t.idle < idleTicks {
		return true
	}
	// A handler that starts now either sees that the connection is not monitored, or is
	// seen by the load below.
	t.idle = 0
	t.monitored.Store(false)
	return t.running.Load() != 0 && t.monitored.CompareAndSwap(false, true)
}
