package lsm

import "time"

const (
	// The merges that are due slow writers down from slowExcess tables on, and stop
	// flushes, and so writers, at maxExcess. Without pressure a large merge and the
	// small ones for which it pauses leave about ten more tables than the rule.
	slowExcess = 16
	maxExcess  = 48
	// crowdedFlushes is how many times as long as a flush a memtable takes to fill
	// just before writers stop: a memtable is merged about as often as the number of
	// memtables in the store has bits.
	crowdedFlushes = 16

	// freeFill is the part of a memtable that is filled at any speed while the one
	// before it is written: bursts cost nothing.
	freeFill = 0.5
	// Delays are long enough to be few and for the clock of the operating system to
	// keep them, and short enough that none stands out.
	leastDelay = time.Millisecond
	mostDelay  = 20 * time.Millisecond
	// paceSteps is how often a writer looks at the clock while it fills a memtable,
	// and so more than the number of its delays.
	paceSteps = 64
)

// pace is what the speed of writers depends on.
//
// A memtable must not be full before the one that waits is a table, or else its
// writer stops for as long as that takes. So the writer is made to fill it no faster
// than a flush is expected to go: in small delays all along instead of a stop at the
// end. The same holds, with flushes taken to be slower, when merges lag behind.
//
// Of 4 million writes to a disk that takes 100 MB/s the longest took 255 ms without
// delays and 22 to 44 ms with them, and all of them, with merges, as long.
type pace struct {
	filled  float64       // part of the memtable being filled
	elapsed time.Duration // since it was begun
	flush   time.Duration // that the flush under way is expected to take
	waiting bool          // the memtable before it is not yet a table
	excess  int           // tables over what the rule leaves
}

// delay is how long the next write should wait.
func (p pace) delay() time.Duration {
	crowd := min(1, max(0, float64(p.excess-slowExcess)/(maxExcess-slowExcess)))
	if !p.waiting && crowd == 0 {
		return 0
	}
	flush := p.flush
	if p.waiting && p.elapsed > flush { // it may take as long again
		flush = 2 * p.elapsed
	}
	free := freeFill * (1 - crowd)
	target := float64(flush) * (1 + (crowdedFlushes-1)*crowd)
	due := time.Duration(target * (p.filled - free) / (1 - free))
	if wait := due - p.elapsed; wait >= leastDelay {
		return min(wait, mostDelay)
	}
	return 0
}

// expectFlush is how long the next flush is expected to take after one that was
// expected to take some time took another. It believes a slow one at once and quick
// ones by and by, as merges slow some flushes down.
func expectFlush(expected, took time.Duration) time.Duration {
	return max(took, expected-(expected-took)/4)
}

// slowDown delays the write about to be done, if it should be, and tells whether
// it let go of mu for that. Called under mu.
func (db *DB) slowDown(filled int64) (waited bool) {
	full := db.memtableBytes()
	db.mu.lookAgain = filled + full/paceSteps
	v := db.current.Load()
	p := pace{
		filled:  float64(filled) / float64(full),
		elapsed: time.Since(db.mu.begun),
		flush:   db.mu.flushTook * time.Duration(db.mu.flushUnits),
		waiting: len(v.memtables) > 1,
		excess:  db.options.MergeRule.excess(db.units(v.tables)),
	}
	d := p.delay()
	if d == 0 {
		return false
	}
	db.mu.Unlock()
	start := time.Now()
	timer := time.NewTimer(d)
	select {
	case <-timer.C:
	case <-db.closing:
		timer.Stop()
	}
	db.counters.delays.Add(1)
	db.counters.delayNanos.Add(uint64(time.Since(start)))
	db.mu.Lock()
	return true
}
