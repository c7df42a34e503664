package main

import "math/bits"

// pairs has the number of lanes and the last leased slot of each frontend and backend. It
// is a hash table in flat arrays with linear probing.
type pairs struct {
	keys  []uint64 // frontend and backend, plus one; 0 for none
	lanes []int32
	slots []int32
	count int
	shift int // of a key's hash, to get an index
}

func newPairs(expected int) pairs {
	n := 1024
	for n < 2*expected {
		n *= 2
	}
	return emptyPairs(n)
}

func emptyPairs(n int) pairs {
	return pairs{
		keys: make([]uint64, n), lanes: make([]int32, n), slots: make([]int32, n),
		shift: bits.LeadingZeros64(uint64(n)) + 1,
	}
}

func pairKey(frontend, backend int32) uint64 { return uint64(frontend)<<32 | uint64(backend) + 1 }

func (p *pairs) home(key uint64) int { return int(key * 0x9e3779b97f4a7c15 >> p.shift) }

// place returns the index of a pair, or the one where it would be inserted.
func (p *pairs) place(key uint64) int {
	i := p.home(key)
	for p.keys[i] != key && p.keys[i] != 0 {
		i = (i + 1) & (len(p.keys) - 1)
	}
	return i
}

// lanesOf returns the number of lanes of a pair.
func (p *pairs) lanesOf(frontend, backend int32) int32 {
	return p.lanes[p.place(pairKey(frontend, backend))]
}

// add adds a lane and reports whether it is the first. slot -1 means the slot of the
// pair's other lanes.
func (p *pairs) add(frontend, backend, slot int32) (first bool) {
	if 2*p.count >= len(p.keys) {
		p.grow()
	}
	key := pairKey(frontend, backend)
	i := p.place(key)
	if first = p.keys[i] == 0; first {
		p.keys[i] = key
		p.count++
	}
	p.lanes[i]++
	if slot >= 0 {
		p.slots[i] = slot
	}
	return first
}

// remove removes a lane. It returns the slot leased last, -1 if there is no lane, and
// whether the lane was the last.
func (p *pairs) remove(frontend, backend int32) (slot int32, last bool) {
	i := p.place(pairKey(frontend, backend))
	if p.keys[i] == 0 {
		return -1, false
	}
	slot = p.slots[i]
	if p.lanes[i]--; p.lanes[i] == 0 {
		p.delete(i)
		return slot, true
	}
	return slot, false
}

// delete removes a pair and closes the gap, so that the table needs no tombstones.
func (p *pairs) delete(i int) {
	mask := len(p.keys) - 1
	p.count--
	for j := i; ; {
		p.keys[i], p.lanes[i] = 0, 0
		for {
			j = (j + 1) & mask
			if p.keys[j] == 0 {
				return
			}
			if home := p.home(p.keys[j]); (j-home)&mask >= (j-i)&mask {
				break
			}
		}
		p.keys[i], p.lanes[i], p.slots[i] = p.keys[j], p.lanes[j], p.slots[j]
		i = j
	}
}

func (p *pairs) grow() {
	old := *p
	*p = emptyPairs(2 * len(old.keys))
	p.count = old.count
	for i, key := range old.keys {
		if key != 0 {
			j := p.place(key)
			p.keys[j], p.lanes[j], p.slots[j] = key, old.lanes[i], old.slots[i]
		}
	}
}
