package subset

import "math/bits"

// ringsteady places frontends and backends on one circle by a low-discrepancy
// sequence. A frontend uses the backends clockwise of it, as in consistent hashing.
// Scaling moves the positions to even distances and keeps their order.
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

// start returns the place on the ring of backends where the frontend's subset starts.
func (a ringsteady) start(r ring, q request) uint64 {
	if !a.frontendScaling {
		position := bits.Reverse64(q.frontend)
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

// startByRank returns the place of the task with a rank modulo n.
func startByRank(r ring, rank uint64) uint64 { return r.reversed(r.byRank(rank % r.n)) }
