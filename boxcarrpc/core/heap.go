package core

// The free slots are a binary heap: place i holds the entry slots[i].heap, and
// slots[entry].at is its place. Both live in the slice of slots, so that a
// ladder is two slices and nothing else.

// before is the order of use.
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

// The ranks, best first.
const (
	rankFirst uint8 = iota // of a slot: beside those of servers that leave, whose place it is to take
	rankIdle               // of a slot: its server had little to do just now
	rankHealthy
	rankOnTrial   // another request is finding out
	rankUnchecked // not trusted, and to be checked
	rankPaused    // silent, or refused a request lately
	rankEjected   // fails requests
)

// rankOf is the rank of a server's free slots.
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

// rerank moves the free slots of a server to where its state puts them now.
func (l *Ladder) rerank(peer int32) {
	rank := l.rankOf(&l.peers[peer])
	for i := range l.slots {
		if s := &l.slots[i]; s.state == slotFree && s.peer == peer && s.rank != rank {
			s.rank = rank
			l.down(l.up(s.at))
		}
	}
}
