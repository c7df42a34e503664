package core

// The free slots are a binary heap. Place i of the heap has the entry slots[i].heap, and
// slots[entry].at is the place of an entry. Both are stored in the slice of slots, so
// that a ladder has only two slices.

// before reports whether free slot a is used before free slot b.
func (l *Ladder) before(a, b int32) bool {
	s, t := &l.slots[a], &l.slots[b]
	if s.rank != t.rank {
		return s.rank < t.rank
	}
	if s.rank == rankIdle {
		return s.lessLoaded(t)
	}
	if s.level != t.level {
		return s.level < t.level
	}
	return s.order < t.order
}

func (l *Ladder) insert(entry int32) {
	l.free++
	l.put(l.free-1, entry)
	l.up(l.free - 1)
}

func (l *Ladder) remove(entry int32) {
	place := l.slots[entry].at
	l.free--
	if place == l.free {
		return
	}
	l.put(place, l.slots[l.free].heap)
	l.down(l.up(place))
}

func (l *Ladder) put(place, entry int32) {
	l.slots[place].heap = entry
	l.slots[entry].at = place
}

func (l *Ladder) up(place int32) int32 {
	entry := l.slots[place].heap
	for place > 0 {
		parent := (place - 1) / 2
		if !l.before(entry, l.slots[parent].heap) {
			break
		}
		l.put(place, l.slots[parent].heap)
		place = parent
	}
	l.put(place, entry)
	return place
}

func (l *Ladder) down(place int32) {
	entry := l.slots[place].heap
	for {
		child := 2*place + 1
		if child >= l.free {
			break
		}
		if right := child + 1; right < l.free && l.before(l.slots[right].heap, l.slots[child].heap) {
			child = right
		}
		if !l.before(l.slots[child].heap, entry) {
			break
		}
		l.put(place, l.slots[child].heap)
		place = child
	}
	l.put(place, entry)
}

// The ranks of free slots, best first. rankFirst and rankIdle are ranks of one slot,
// the others of all free slots of a server.
const (
	rankFirst uint8 = iota // to be tried, so that it can replace a slot of a leaving server
	rankIdle               // the server reported little load
	rankHealthy
	rankOnTrial   // not trusted; another request is testing the server
	rankUnchecked // not trusted; a health check is due
	rankPaused    // suspect, or refused a request recently
	rankEjected   // fails requests
)

// rankOf returns the rank of a server's free slots.
func (l *Ladder) rankOf(p *Peer) uint8 {
	switch {
	case p.ejected:
		return rankEjected
	case p.paused || p.suspect:
		return rankPaused
	case !p.trusted && l.checks:
		return rankUnchecked
	case p.onTrial:
		return rankOnTrial
	}
	return rankHealthy
}

// rerank updates the rank of a server's free slots and moves them in the heap.
func (l *Ladder) rerank(peer int32) {
	rank := l.rankOf(&l.peers[peer])
	for i := range l.slots {
		if s := &l.slots[i]; s.state == slotFree && s.peer == peer && s.rank != rank {
			s.rank = rank
			l.down(l.up(s.at))
		}
	}
}
