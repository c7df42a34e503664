package subset

import "math/bits"

// ring is the circle of the article's figure 4b. The binary van der Corput sequence
// places n tasks on it: 0, 1/2, 1/4, 3/4, 1/8, ..., the bits of the task's number
// reversed after the binary point. Low numbers are spread over the circle, and later
// ones fill the gaps.
//
// A place is a position in units of 1/2^bits. More than half of the places have a
// task: all even ones do, because their tasks are below 2^(bits-1) < n.
type ring struct {
	n    uint64
	bits int
}

func newRing(n uint64) ring { return ring{n, bits.Len64(n - 1)} }

// reversed is the place of a task, and the task of a place.
func (r ring) reversed(x uint64) uint64 { return bits.Reverse64(x) >> (64 - r.bits) }

// next returns the first task at a place or clockwise of it, and the place after it.
func (r ring) next(place uint64) (task, after uint64) {
	for {
		task = r.reversed(place & (1<<r.bits - 1))
		place++
		if task < r.n {
			return task, place
		}
	}
}

// after returns the first place at or clockwise of a position, which is a fraction of
// the circle in units of 1/2^64.
func (r ring) after(position uint64) uint64 {
	place := position >> (64 - r.bits)
	if position<<r.bits != 0 {
		place++
	}
	return place
}

// congruent counts the tasks whose number has the same low bits as number. They are
// the tasks in one arc of 1/2^low of the circle.
func (r ring) congruent(number uint64, low int) uint64 {
	number &= 1<<low - 1
	if number >= r.n {
		return 0
	}
	return (r.n-1-number)>>low + 1
}

// rank counts the tasks in places before that of task, which need not be on the ring.
func (r ring) rank(task uint64) (rank uint64) {
	for low := range bits.Len64(task) {
		if task>>low&1 == 1 {
			rank += r.congruent(task&(1<<low-1), low+1)
		}
	}
	return rank
}

// byRank returns the task with the given rank, which is below n.
func (r ring) byRank(rank uint64) (task uint64) {
	for low := 0; r.congruent(task, low) > 1; low++ {
		if before := r.congruent(task, low+1); rank >= before {
			rank -= before
			task |= 1 << low
		}
	}
	return task
}

// ceilScaled returns x*to/from rounded up. It converts a position from units of 1/from
// to units of 1/to. x is at most from, and all are at most MaxTasks.
func ceilScaled(x, to, from uint64) uint64 { return (x*to + from - 1) / from }

// ceilFraction converts a position from units of 1/2^64 to units of 1/n, rounded up.
func ceilFraction(position, n uint64) uint64 {
	whole, rest := bits.Mul64(position, n)
	if rest != 0 {
		whole++
	}
	return whole
}
