package core

import "math/rand/v2"

// How a server that fails requests is left out. Each server has an average of its
// failures, in which a request counts an eighth: six failures in a row bring it
// from none to a half. A server above a half that fails twice as often as the others
// on average is ejected: its slots rank last, and it is asked for no others, for a
// pause. Then one request, or a check, finds out: success makes it trusted again,
// failure ejects it for twice as long. A server that is not trusted yet, or again,
// is ejected by its first failure, and any by a check that it fails.
//
// No more than a third of the servers are ejected at once, and at least one may be:
// where all fail alike it is not the servers.
const (
	faultWeight = 8       // a request is the 8th part of the average
	faultFull   = 1 << 16 // every request has failed
	faultEject  = faultFull / 2
	faultRatio  = 2
	ejectPart   = 3

	ejectBase  = 1e9
	ejectLimit = 60e9

	// How long after one check that taught nothing the next may be.
	checkAgain = 1e9
)

// fail draws the conclusion of a failed request.
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

// succeed draws the conclusion of a request that did not fail. A server without
// any failure of late is ejected for a short time first when it fails again.
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

// isOutlier reports whether a server fails much more than the others.
func (l *Ladder) isOutlier(p *Peer) bool {
	others := int64(max(l.members-1, 1))
	return p.fault >= faultEject && int64(p.fault)*others >= faultRatio*(l.faults-int64(p.fault))
}

// eject leaves a server out, unless too many are.
func (l *Ladder) eject(now int64, peer int32, rng *rand.PCG) {
	if l.peers[peer].ejected || l.members < 2 || l.ejected >= max(1, l.members/ejectPart) {
		return
	}
	p := &l.peers[peer]
	p.ejected, p.trusted, p.onTrial = true, false, false
	l.ejected++
	p.ejection.enter(now, ejectBase, ejectLimit, rng)
	l.wake = min(l.wake, p.ejection.until)
	l.unwelcome(p)
	l.rerank(peer)
}

// readmit ends an ejection: the server is to prove itself.
func (l *Ladder) readmit(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	p.ejected = false
	l.ejected--
	l.checkAt = 0
	l.rerank(peer)
	if p.live() {
		l.greet(now, p, rng) // it may hold few slots, or none
	}
}

// absolve forgets what a server has failed.
func (l *Ladder) absolve(peer int32) {
	p := &l.peers[peer]
	l.setFault(p, 0)
	p.ejection = backoff{}
	if p.ejected {
		p.ejected = false
		l.ejected--
		l.rerank(peer)
	}
}

// CheckHealth has servers checked before requests go there that are not trusted:
// new, back from quarantine, or ejected before; and those with slots besides once
// in every, if that is above 0, in nanoseconds.
func (l *Ladder) CheckHealth(every int64) { l.checks, l.checkEvery, l.checkAt = true, every, 0 }

// Check takes a free slot of a server whose check is due. The caller sends a
// request that only an unwell server fails, releases the slot with its outcome, and
// calls Checked, always. It calls Check until there is none, and again when it calls
// LeaseSeeker.NextRequest.
func (l *Ladder) Check(now int64, rng *rand.PCG) (entry int32, ok bool) {
	if !l.checks || now < l.checkAt {
		return none, false
	}
	l.checkAt = never
	for i := range l.peers[:l.extent] {
		p := &l.peers[i]
		switch {
		case p.held == 0 || p.checking || p.ejected || p.trusted && l.checkEvery <= 0:
			continue
		case now < p.checkAt:
			l.checkAt = min(l.checkAt, p.checkAt)
			continue
		}
		if entry = l.freeOf(int32(i)); entry == none {
			l.checkAt = min(l.checkAt, now+checkAgain)
			continue
		}
		pause := int64(checkAgain)
		if p.trusted {
			pause = l.checkEvery
		}
		p.checking, p.checkAt = true, now+jitter(rng, pause)
		l.checkAt = now // there may be more
		l.take(entry)
		return entry, true
	}
	return none, false
}

// Checked ends a check. A server that failed it is ejected.
func (l *Ladder) Checked(now int64, peer int32, well bool, rng *rand.PCG) {
	p := &l.peers[peer]
	p.checking = false
	l.checkAt = 0
	if !well && p.member {
		l.eject(now, peer, rng)
	}
}

// freeOf returns the server's first free slot, none if it has none.
func (l *Ladder) freeOf(peer int32) int32 {
	best := none
	for i := range l.slots {
		if s := &l.slots[i]; s.state == slotFree && s.peer == peer && (best == none || l.before(int32(i), best)) {
			best = int32(i)
		}
	}
	return best
}
