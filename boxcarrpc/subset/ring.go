package subset

import "math/bits"

// ring is the circle of the article's figure 4b: n tasks in places that the
// binary van der Corput sequence gives them, the bits of their number reversed
// behind the point: 0, 1/2, 1/4, 3/4, 1/8, ... Low numbers are spread over the
// circle, and those that follow fill the gaps.
//
// A place is a position in units of 1/2^bits, of which more than half are taken:
// every even place is, for its task is below 2^(bits-1) < n.
type ring struct {
	n    uint64
	bits int
}

func newRing(n uint64) ring { return ring{n, bits.Len64(n - 1)} }

// reversed is the place of a task, and the task of a place.
func (r ring) reversed(x uint64) uint64 { return bits.Reverse64(x) >> (64 - r.bits) }

// next returns the first task at a place or clockwise of it, and the place
// behind it.
func (r ring) next(place uint64) (task, after uint64) {
	for {
		task = r.reversed(place & (1<<r.bits - 1))
		place++
		if task < r.n {
			return task, place
		}
	}
}

// after is the first place at a position, a fraction of the circle in units of
// 1/2^64, or clockwise of it.
func (r ring) after(position uint64) uint64 {
	place := position >> (64 - r.bits)
	if position<<r.bits != 0 {
		place++
	}
	return place
}

// congruent counts the tasks whose number has the same low bits as the given
// one: those in one arc of 1/2^low of the circle.
func (r ring) congruent(number uint64, low int) uint64 {
	number &= 1<<low - 1
	if number >= r.n {
		return 0
	}
	return (r.n-1-number)>>low + 1
}

// rank is how many tasks are in places before the task's own, which need not be
// on the ring.
func (r ring) rank(task uint64) (rank uint64) {
	for low := range bits.Len64(task) {
		if task>>low&1 == 1 {
			rank += r.congruent(task&(1<<low-1), low+1)
		}
	}
	return rank
}

// byRank is the task with so many tasks in places before its own; rank is below
// n.
func (r ring) byRank(rank uint64) (task uint64) {
	for low := 0; r.congruent(task, low) > 1; low++ {
		if before := r.congruent(task, low+1); rank >= before {
			rank -= before
			task |= 1 << low
		}
	}
	return task
}

// ceilScaled is x*to/from rounded up: a position in units of 1/from in units of
// 1/to. x is at most from, and all are at most MaxTasks.
func ceilScaled(x, to, from uint64) uint64 { return (x*to + from - 1) / from }

// ceilFraction is position*n rounded up: a position in units of 1/2^64 in units
// of 1/n.
func ceilFraction(position, n uint64) uint64 {
	whole, rest := bits.Mul64(position, n)
	if rest != 0 {
		whole++
	}
	return whole
}
