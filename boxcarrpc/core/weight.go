package core

// Servers of different capacity. A server of weight 2 takes twice the load of one of
// weight 1. A slot's level is its number divided by the server's weight, rounded down.
// The ladder orders slots by level; servers know numbers only.
//
//	weight 1   number  0     1     2          level  0     1     2
//	weight 2   number  0  1  2  3  4  5       level  0  0  1  1  2  2
//
// Weights are multiples of 1/64, so that their sums are exact.
const weightUnit = 64

// MaxWeight is the maximum weight; the minimum is 1.
const MaxWeight = 64

// SetWeight sets the capacity of a server relative to the smallest server in the set.
// The weight is clamped to the range from 1 to MaxWeight.
func (l *Ladder) SetWeight(peer int32, weight float64) {
	extra := int32((min(max(weight, 1), MaxWeight) - 1) * weightUnit)
	p := &l.peers[peer]
	if p.extra == extra {
		return
	}
	p.extra = extra
	l.recount(p)
	l.relevel(peer)
}

// relevel updates the levels of a server's slots and moves them in the heap.
func (l *Ladder) relevel(peer int32) {
	p := &l.peers[peer]
	l.topKnown = false
	for i := range l.slots {
		s := &l.slots[i]
		if s.state == slotUnused || s.peer != peer {
			continue
		}
		s.level = p.level(s.number)
		if s.state == slotFree {
			l.down(l.up(s.at))
		}
	}
}

// recount updates the sums over the servers after a change of a server.
func (l *Ladder) recount(p *Peer) {
	live, share := p.live(), int32(0)
	if live && p.request != overdue {
		share = int32(p.weight())
	}
	if live != p.counted {
		p.counted = live
		change := int32(1)
		if !live {
			change = -1
		}
		l.live += change
		if !p.ejected {
			l.sound += change
		}
	}
	l.shares += int64(share - p.share)
	if p.far {
		l.farShares += int64(share - p.share)
	}
	p.share = share
	own := int32(0)
	if p.standing() == owned {
		own = int32(p.weight())
	}
	if own > 0 && p.own == 0 {
		l.owned++
	} else if own == 0 && p.own > 0 {
		l.owned--
	}
	l.own += int64(own - p.own)
	p.own = own
}

func (p *Peer) weight() int64 { return weightUnit + int64(p.extra) }

// level returns the level of the server's slot with this number.
func (p *Peer) level(number int32) int32 {
	if p.extra != 0 {
		number = int32(int64(number) * weightUnit / p.weight())
	}
	if p.far {
		number += farRaise
	}
	return number
}

// below returns the lowest number whose level is at least the given one, or NoSlot.
func (p *Peer) below(level int32) int32 {
	switch {
	case level >= farRaise && !p.far, level == NoSlot:
		return NoSlot
	case p.far:
		level = max(level-farRaise, 0)
	}
	if p.extra == 0 {
		return level
	}
	return int32(min((int64(level)*p.weight()+weightUnit-1)/weightUnit, int64(NoSlot)))
}

// laneCap bounds the slots of a server: twice its share by weight among the near or the far
// servers, and at least 2. Servers that do not answer have no share. While servers are
// borrowed, a server of the subset has its share of the subset, so that half of these can
// replace all borrowed ones.
func (l *Ladder) laneCap(p *Peer) int32 {
	shares := l.shares - l.farShares
	if p.far {
		shares = l.farShares
	}
	if l.owned < l.members && !p.borrowed {
		shares = l.own
	}
	return max(2, int32(2*int64(l.size)*p.weight()/max(shares, p.weight())))
}
