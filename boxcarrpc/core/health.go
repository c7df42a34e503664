package core

import "math/rand/v2"

// Outlier ejection. Each server has a moving average of its failure rate in which a
// request has the weight 1/8: six consecutive failures raise it from 0 to above 1/2. A
// server is ejected if its rate is at least 1/2 and twice the average of the others.
// During the ejection its slots rank last and it is not asked for slots. Afterwards one
// request, or a health check, tests it: a success makes it trusted, a failure ejects it
// for twice as long. The first failure of an untrusted server ejects it, and so does a
// failed check of any server.
//
// At most a third of the servers, but at least one, are ejected at a time: if most
// servers fail, the cause is elsewhere. A server is not ejected if no other live one is
// left, and ejected servers are asked for slots while there is no other live one.
const (
	faultWeight = 8       // inverse weight of a request in the average
	faultFull   = 1 << 16 // every request has failed
	faultEject  = faultFull / 2
	faultRatio  = 2
	ejectPart   = 3

	ejectBase  = 1e9 // nanoseconds, as below
	ejectLimit = 60e9

	// checkAgain is the time between two checks of an untrusted server, or until a
	// check that found no free slot is tried again.
	checkAgain = 1e9
)

// fail records a failed request.
func (l *Ladder) fail(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	if !p.member {
		return
	}
	l.setFault(p, p.fault+(faultFull-p.fault)/faultWeight)
	if !p.trusted || l.isOutlier(p) {
		l.eject(now, peer, rng)
	}
}

// succeed records a successful request. A server without recent failures starts again
// with the shortest ejection.
func (l *Ladder) succeed(p *Peer) {
	if p.fault == 0 {
		p.ejection.level = 0
		return
	}
	l.setFault(p, p.fault-(p.fault+faultWeight-1)/faultWeight)
}

func (l *Ladder) setFault(p *Peer, fault int32) {
	l.faults += int64(fault - p.fault)
	p.fault = fault
}

// isOutlier reports whether a server fails much more often than the others.
func (l *Ladder) isOutlier(p *Peer) bool {
	others := int64(max(l.members-1, 1))
	return p.fault >= faultEject && int64(p.fault)*others >= faultRatio*(l.faults-int64(p.fault))
}

// eject ejects a server unless too many are ejected, or no other one is live.
func (l *Ladder) eject(now int64, peer int32, rng *rand.PCG) {
	if l.peers[peer].ejected || l.ejected >= max(1, l.members/ejectPart) || !l.hasOtherSound(peer) {
		return
	}
	p := &l.peers[peer]
	p.trusted, p.onTrial = false, false
	l.setEjected(p, true)
	p.ejection.enter(now, ejectBase, ejectLimit, rng)
	l.schedule(peer)
	l.unwelcome(peer)
	l.rerank(peer)
}

// hasOtherSound reports whether another server is live and not ejected.
func (l *Ladder) hasOtherSound(peer int32) bool {
	p := &l.peers[peer]
	return l.sound > 1 || l.sound == 1 && (p.ejected || !p.counted)
}

// setEjected begins or ends the ejection of a server, and counts it.
func (l *Ladder) setEjected(p *Peer, ejected bool) {
	change := int32(1)
	if !ejected {
		change = -1
	}
	p.ejected = ejected
	l.ejected += change
	if p.counted {
		l.sound -= change
	}
}

// readmit ends an ejection. The server is not trusted until a request succeeds.
func (l *Ladder) readmit(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	l.setEjected(p, false)
	l.checkAt = 0
	l.rerank(peer)
	if p.leases() {
		l.greet(now, peer, rng) // the ladder may hold few of its slots, or none
	}
}

// resetFaults clears a server's failure rate and its ejection.
func (l *Ladder) resetFaults(peer int32) {
	p := &l.peers[peer]
	l.setFault(p, 0)
	p.ejection = backoff{}
	if p.ejected {
		l.setEjected(p, false)
		l.schedule(peer)
		l.rerank(peer)
	}
}

// CheckHealth enables health checks. Untrusted servers (new, or back from quarantine or
// ejection) are checked before they get requests. If every is above 0, trusted servers
// with slots in the ladder are checked at this interval, in nanoseconds.
func (l *Ladder) CheckHealth(every int64) { l.checks, l.checkEvery, l.checkAt = true, every, 0 }

// Check takes a free slot of a server whose check is due. The caller sends a request
// that only an unhealthy server fails, releases the slot with its outcome, and calls
// Checked in any case. It calls Check until it is not ok, and again whenever it calls
// LeaseSeeker.NextRequest.
func (l *Ladder) Check(now int64, rng *rand.PCG) (entry int32, ok bool) {
	if !l.checks || now < l.checkAt {
		return none, false
	}
	l.checkAt = never
	for i := range l.slots {
		s := &l.slots[i]
		if s.state == slotUnused || s.retiring {
			continue
		}
		p := &l.peers[s.peer]
		switch {
		case p.checking || p.ejected || p.trusted && l.checkEvery <= 0:
			continue
		case now < p.checkAt:
			l.checkAt = min(l.checkAt, p.checkAt)
			continue
		}
		if entry = l.freeOf(s.peer); entry == none {
			l.checkAt = min(l.checkAt, now+checkAgain)
			continue
		}
		pause := int64(checkAgain)
		if p.trusted {
			pause = l.checkEvery
		}
		p.checking, p.checkAt = true, now+jitter(rng, pause)
		l.checkAt = now // other checks may be due
		l.take(entry)
		return entry, true
	}
	return none, false
}

// Checked ends a check. It ejects a server that is not healthy.
func (l *Ladder) Checked(now int64, peer int32, healthy bool, rng *rand.PCG) {
	p := &l.peers[peer]
	p.checking = false
	l.checkAt = 0
	if !healthy && p.member {
		l.eject(now, peer, rng)
	}
}

// freeOf returns the server's first free slot, or none.
func (l *Ladder) freeOf(peer int32) int32 {
	best := none
	for i := range l.slots {
		if s := &l.slots[i]; s.state == slotFree && s.peer == peer && (best == none || l.before(int32(i), best)) {
			best = int32(i)
		}
	}
	return best
}
