package lsm

import "time"

const (
	// Writers are slowed from slowExcess tables above the rule's number on, and flushes
	// stop at maxExcess, which stops writers. Without pressure a large merge and the
	// merges for which it pauses leave about ten tables above the rule.
	slowExcess = 16
	maxExcess  = 48
	// crowdedFlushes is the time to fill a memtable just before writers stop, in flush
	// times: a memtable is merged about log2(memtables in the store) times.
	crowdedFlushes = 16

	// freeFill is the fraction of a memtable that can be filled without delay while the
	// previous one is flushed, so that short bursts are not delayed.
	freeFill = 0.5
	// A delay is at least leastDelay, so that there are few and the timer is accurate,
	// and at most mostDelay, which bounds the latency of a write.
	leastDelay = time.Millisecond
	mostDelay  = 20 * time.Millisecond
	// paceSteps is the number of times that a writer checks the clock while it fills a
	// memtable, and so the maximum number of its delays.
	paceSteps = 64
)

// pace is the input of the write delay.
//
// If the current memtable is full before the waiting one is flushed, writers stall for
// the rest of the flush. Instead, writers are delayed so that they fill it no faster
// than the flush is expected to take. The same is done, with longer flush times, when
// merges lag behind.
//
// For 4 million writes to a disk of 100 MB/s the longest write took 255 ms without
// delays and 22 to 44 ms with them; the total time including merges was equal.
type pace struct {
	filled  float64       // fraction of the current memtable
	elapsed time.Duration // since it was created
	flush   time.Duration // expected time of the current flush
	waiting bool          // the previous memtable is not flushed
	excess  int           // tables above the number that the rule leaves
}

// delay returns the delay of the next write.
func (p pace) delay() time.Duration {
	crowd := min(1, max(0, float64(p.excess-slowExcess)/(maxExcess-slowExcess)))
	if !p.waiting && crowd == 0 {
		return 0
	}
	flush := p.flush
	if p.waiting && p.elapsed > flush { // assume that it takes as long again
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

// expectFlush returns the expected time of the next flush, given the previous
// expectation and the last flush. A slower flush counts fully, a faster one by a
// quarter, because merges slow down some flushes.
func expectFlush(expected, took time.Duration) time.Duration {
	return max(took, expected-(expected-took)/4)
}
