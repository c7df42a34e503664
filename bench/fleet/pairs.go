package main

// pairs has the connected pairs of a frontend and a backend.
type pairs map[uint64]pair

// A pair has the number of its lanes and the slot leased last.
type pair struct{ lanes, slot int32 }

func pairKey(frontend, backend int32) uint64 { return uint64(frontend)<<32 | uint64(uint32(backend)) }

// lanesOf returns the number of lanes of a pair.
func (p pairs) lanesOf(frontend, backend int32) int32 { return p[pairKey(frontend, backend)].lanes }

// add adds a lane and reports whether it is the first. slot -1 means the slot of the
// pair's other lanes.
func (p pairs) add(frontend, backend, slot int32) (first bool) {
	key := pairKey(frontend, backend)
	x := p[key]
	x.lanes++
	if slot >= 0 {
		x.slot = slot
	}
	p[key] = x
	return x.lanes == 1
}

// remove removes a lane. It returns the slot leased last, -1 if there is no lane, and
// whether the lane was the last.
func (p pairs) remove(frontend, backend int32) (slot int32, last bool) {
	key := pairKey(frontend, backend)
	x, ok := p[key]
	if !ok {
		return -1, false
	}
	if x.lanes--; x.lanes == 0 {
		delete(p, key)
		return x.slot, true
	}
	p[key] = x
	return x.slot, false
}
