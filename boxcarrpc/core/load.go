package core

const (
	// idleFor is how long a reported low load ranks a slot first, in nanoseconds.
	idleFor = 200e6
	// The average load is a moving average over about averageCount reports. It is stored
	// times averageScale, so that its integer arithmetic reaches small averages.
	averageScale = 1 << 16
	averageCount = 1 << 8
	maxLoad      = 1 << 10
	// heedAverage is the least average load, times averageScale, at which reports change the
	// order of slots.
	heedAverage = averageScale / 64
)

// ReportLoad records the number of other requests in flight on the server of a slot
// when it answered the request that was just released. If the load is 0 or below the
// average of all reports, the slot ranks first for 200 ms. Of several such slots the
// one with the lowest load is used first; of equal ones, the one reported last. While
// the average is below 1/64, reports do not change the order.
//
// A slot number measures leases, not load: two clients may use the same server by low
// numbers while other servers are idle. With load reports each client stays on idle
// servers, as in Lu et al., "Join-Idle-Queue", 2011, but without messages. In a fleet
// without load it would thereby use a few servers only; there a ladder keeps the order of
// the Boxcar article.
func (l *Ladder) ReportLoad(now int64, entry, load int32) {
	load = min(max(load, 0), maxLoad)
	if l.isFar(entry) && l.farHeld < l.held {
		l.reportFar(entry, load)
		return
	}
	idle := l.averageLoad >= heedAverage && (load == 0 || load*averageScale < l.averageLoad)
	l.averageLoad += (load*averageScale - l.averageLoad) / averageCount
	if s := &l.slots[entry]; idle && s.state == slotFree && s.rank == rankHealthy {
		s.rank, s.loadAt, s.load = rankIdle, now, load
		l.up(s.at)
	}
	l.reportNear(load)
}

// expireLoad resets the rank of the first slot, which is rankIdle, if its load report
// is older than idleFor, and reports whether it did.
func (l *Ladder) expireLoad(now int64) bool {
	s := &l.slots[l.slots[0].heap]
	if now-s.loadAt <= idleFor {
		return false
	}
	s.rank = l.rankOf(&l.peers[s.peer])
	l.down(0)
	return true
}

// lessLoaded is the order of slots of rankIdle.
func (s *Slot) lessLoaded(t *Slot) bool {
	switch {
	case s.load != t.load:
		return s.load < t.load
	case s.loadAt != t.loadAt:
		return s.loadAt > t.loadAt
	}
	return s.order > t.order
}
