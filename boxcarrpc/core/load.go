package core

const (
	// idleFor is how long a slot is used first because its server was quiet, in
	// nanoseconds.
	idleFor = 200e6
	// The usual load is an average over about usualCount reports.
	usualScale = 1 << 8
	usualCount = 1 << 5
	maxLoad    = 1 << 16
)

// ReportLoad tells how many other requests the server of a slot had when it answered
// the request that was just released. If that is none, or less than servers report
// on average, the slot ranks first for a little while: of several
// such slots the one of the least load, of equal ones the one that was heard of
// last, because what it said is least out of date.
//
// A slot number measures leases, not load: two clients may use one server, each by
// a low number, while others rest. With this each keeps to servers that it has for
// itself, as an idle server that joins a queue of its dispatcher does in Lu et al.,
// "Join-Idle-Queue", 2011, without a message. A client that never calls it has the
// article's order.
func (l *Ladder) ReportLoad(now int64, entry, load int32) {
	load = min(max(load, 0), maxLoad)
	quiet := load == 0 || load*usualScale < l.usual
	l.usual += (load*usualScale - l.usual) / usualCount
	if s := &l.slots[entry]; quiet && s.state == slotFree && s.rank == rankHealthy {
		s.rank, s.loadAt, s.load = rankIdle, now, load
		l.up(s.at)
	}
}

// expireLoad puts the first slot, which is of a quiet server, back to its place if
// what the server said is too long ago.
func (l *Ladder) expireLoad(now int64) bool {
	s := &l.slots[l.slots[0].heap]
	if now-s.loadAt <= idleFor {
		return false
	}
	s.rank = l.rankOf(&l.peers[s.peer])
	l.down(0)
	return true
}

// lessLoaded is the order of slots of quiet servers.
func (s *Slot) lessLoaded(t *Slot) bool {
	switch {
	case s.load != t.load:
		return s.load < t.load
	case s.loadAt != t.loadAt:
		return s.loadAt > t.loadAt
	}
	return s.order > t.order
}
