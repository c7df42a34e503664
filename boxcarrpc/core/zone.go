package core

// Zones. A server in another zone than the client's is far, the others are near. The level
// of a slot of a far server is raised above that of every near one. Thereby the ladder uses
// near slots first, and exchanges far ones for them.
//
// A quarter of the slots is spare: it stays on far servers. Spare slots are used when the
// near slots are busy or lost, and when the near servers report more load than the far ones
// by a bound. Then each report of a near server that has more load than the average far one
// makes the next request use a far slot: the one that was idle when it was used last, or
// else another. While the near servers have load, one request in exploreEvery uses a far
// slot in any case, to measure the load there.
//
// The bound is one of load, not of slot numbers. A slot number measures leases: the lowest
// free numbers of two zones differ if one has more clients for each server, whatever their
// load is. With a level raised by a constant, or in proportion, a ladder that was filled
// while its zone was down kept its far slots.
const (
	farRaise  = 1 << 24 // above every slot number
	sparePart = 4       // inverse share of the slots of a ladder that are spare

	exploreEvery = 256 // reports of near servers
	farCount     = 32  // averageCount for far servers, which report rarely

	// The bound: the average load of the near servers is above that of the far ones by
	// 1/spillPart of it and spillLoad.
	spillPart = 8
	spillLoad = averageScale / 64
)

// SetFar sets whether a server is in another zone than the client.
func (l *Ladder) SetFar(peer int32, far bool) {
	p := &l.peers[peer]
	if p.far == far {
		return
	}
	sign := int32(1)
	if !far {
		sign = -1
	}
	p.far = far
	l.farHeld += sign * p.held
	l.farShares += int64(sign * p.share)
	l.relevel(peer)
}

// Left returns the number of requests that used far servers, without health checks.
func (l *Ladder) Left() uint64 { return l.left }

// spare returns the number of slots that the ladder keeps on far servers.
func (l *Ladder) spare() int32 {
	if l.farShares == 0 || l.farShares == l.shares {
		return 0
	}
	return l.size / sparePart
}

// isFar reports whether an entry is on a far server.
func (l *Ladder) isFar(entry int32) bool { return l.peers[l.slots[entry].peer].far }

// topFor returns the entry that a slot of the server is to replace if the ladder is full. It
// is not ok if the ladder has enough of them. A near slot replaces no spare one, and only a
// slot that is to be spare replaces a near one.
func (l *Ladder) topFor(p *Peer) (top int32, ok bool) {
	top = l.highest(none)
	spare := l.spare()
	switch {
	case spare == 0 || l.nearTop == none || l.standing(top) < p.standing():
		return top, true
	case p.far && l.farHeld < spare, !p.far && l.farHeld <= spare:
		return l.nearTop, true
	}
	return top, !p.far || l.farHeld > spare
}

// reportNear follows a load report of a near server.
func (l *Ladder) reportNear(load int32) {
	if l.farHeld == 0 || l.averageLoad < heedAverage {
		return
	}
	l.spilling = l.averageLoad > l.farLoad+l.farLoad/spillPart+spillLoad
	if l.explore--; l.explore <= 0 || l.spilling && load*averageScale > l.farLoad {
		l.explore = exploreEvery
		l.tryFar()
	}
}

// reportFar follows a load report of a far server.
func (l *Ladder) reportFar(entry, load int32) {
	l.farLoad += (load*averageScale - l.farLoad) / farCount
	if load == 0 && l.spilling {
		l.cursor = entry - 1
	}
}

// tryFar makes the next request use a free slot of a far server: the first after cursor.
func (l *Ladder) tryFar() {
	for range l.slots {
		if l.cursor++; int(l.cursor) >= len(l.slots) {
			l.cursor = 0
		}
		if s := &l.slots[l.cursor]; s.state == slotFree && s.rank == rankHealthy && l.isFar(l.cursor) {
			s.rank = rankFirst
			l.up(s.at)
			return
		}
	}
}
