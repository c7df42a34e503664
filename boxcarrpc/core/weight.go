package core

// Mixed hardware. A server of weight 2 takes twice the load of one of weight 1, so
// two of its slots are worth one of the other's: a slot's level is its number
// divided by the weight, rounded down. The ladder orders and compares by level,
// the server knows numbers only.
//
//	weight 1   number  0     1     2          level  0     1     2
//	weight 2   number  0  1  2  3  4  5       level  0  0  1  1  2  2
//
// A weight is a multiple of a 64th, so that sums of weights are exact.
const weightUnit = 64

// MaxWeight is the largest weight that is told from larger ones; 1 is the
// smallest.
const MaxWeight = 64

// SetWeight tells the capacity of a server relative to the smallest in the set.
func (l *Ladder) SetWeight(peer int32, weight float64) {
	extra := int32((min(max(weight, 1), MaxWeight) - 1) * weightUnit)
	p := &l.peers[peer]
	if p.extra == extra {
		return
	}
	if p.live() {
		l.liveWeight += int64(extra - p.extra)
	}
	p.extra = extra
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

// countLive counts a server that has become live, or is not any more.
func (l *Ladder) countLive(p *Peer, sign int32) {
	l.live += sign
	l.liveWeight += int64(sign) * p.weight()
}

func (p *Peer) weight() int64 { return weightUnit + int64(p.extra) }

// level is that of a slot of the server.
func (p *Peer) level(number int32) int32 {
	if p.extra == 0 {
		return number
	}
	return int32(int64(number) * weightUnit / p.weight())
}

// below is the lowest number whose level is not below the given one.
func (p *Peer) below(level int32) int32 {
	if p.extra == 0 {
		return level
	}
	return int32(min((int64(level)*p.weight()+weightUnit-1)/weightUnit, int64(NoSlot)))
}

// laneCap bounds the slots of a server: twice its share by weight, and at least 2.
func (l *Ladder) laneCap(p *Peer) int32 {
	return max(2, int32(2*int64(l.size)*p.weight()/max(l.liveWeight, 1)))
}
