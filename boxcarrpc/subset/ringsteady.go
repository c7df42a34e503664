package subset

import "math/bits"

// ringsteady puts frontends and backends on one circle by a low-discrepancy
// sequence, and a frontend uses the backends clockwise of it: consistent hashing
// with positions that are spread instead of random. With scaling the positions
// are moved to be exactly even, in the same order.
type ringsteady struct {
	backendScaling, frontendScaling bool
}

func (ringsteady) Name() string { return "ringsteady" }

func (a ringsteady) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	if q.k == 0 {
		return dst
	}
	r := newRing(q.backends)
	place := a.start(r, q)
	for range q.k {
		var task uint64
		task, place = r.next(place)
		dst = append(dst, int(task))
	}
	return dst
}

// start is the place on the ring of backends from which the frontend looks.
func (a ringsteady) start(r ring, q request) uint64 {
	position := bits.Reverse64(q.frontend) // unless frontends are scaled
	if !a.frontendScaling {
		if !a.backendScaling {
			return r.after(position)
		}
		return startByRank(r, ceilFraction(position, r.n))
	}
	rank := newRing(q.frontends).rank(q.frontend)
	if !a.backendScaling {
		return ceilScaled(rank, 1<<r.bits, q.frontends)
	}
	return startByRank(r, ceilScaled(rank, r.n, q.frontends))
}

// startByRank is the place of the task that has a rank, counted around the
// circle.
func startByRank(r ring, rank uint64) uint64 { return r.reversed(r.byRank(rank % r.n)) }
