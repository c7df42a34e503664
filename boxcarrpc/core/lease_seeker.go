package core

import "math/rand/v2"

// The pace of lease requests, in nanoseconds.
const (
	restBase    = 50e6  // pause after a request that gained nothing; it doubles
	restLimit   = 60e9  // maximum pause of a full ladder
	idleLimit   = 900e9 // the same of a ladder whose slots serve no requests
	fillLimit   = 1e9   // maximum pause while slots are missing
	swapRest    = 20e6  // pause after a swap
	hintWithin  = 100e6 // maximum delay of a request after a hint
	fillAtOnce  = 4     // concurrent requests while slots are missing
	probeAtOnce = 4     // concurrent probes
	surveyLimit = 128   // maximum requests without a gain before the pauses grow
	pickAttempt = 16    // random picks before all servers are examined
)

// A LeaseSeeker decides which server a client asks for a slot next, and when. The Boxcar
// article calls it the rover.
type LeaseSeeker struct {
	next   int64  // time of the next request that is not due to a hint or a new server
	hintAt int64  // hints are neither followed nor accepted before
	hinted int32  // the server of a hint, plus one; 0 for none
	round  uint32 // a server that declines is asked once in a round
	level  uint8  // consecutive requests that gained nothing
	used   bool   // a slot has served a request since the last pause of a full ladder began
	survey int32  // further requests that may gain nothing before the pauses grow; ends with the round
}

// NextRequest returns the next lease request if one is due: the server, and the number
// that the slot must be below. The caller connects if necessary, sends the request, and
// calls Done in any case. It calls NextRequest again after a request and after Done, and
// at the time of Wake.
//
// A hint is followed first, because its server has just answered. Silent servers do not
// delay the others: a probe does not count as a request, and a request counts for at most
// overdueAfter. See mayProbe for probes.
func (r *LeaseSeeker) NextRequest(now int64, l *Ladder, rng *rand.PCG) (peer, below int32, ok bool) {
	l.Advance(now, rng)
	if l.refill {
		l.refill = false
		if !l.Full() {
			r.RequestNow(now)
			r.survey = surveyOf(l)
		}
	}
	peer, below = r.wanted(l)
	if peer == none && l.asking < atOnce(l) {
		peer, below = r.hint(now, l)
	}
	if peer == none {
		peer, below = r.probe(now, l, rng)
	}
	if peer == none && l.asking < atOnce(l) {
		if peer, below = r.welcome(now, l); peer == none && now >= r.next {
			peer, below = r.pick(l, rng)
			if peer == none {
				peer, below = r.nothing(now, l, rng)
			}
		}
	}
	if peer == none {
		return none, 0, false
	}
	l.beginRequest(now, peer, below)
	return peer, below, true
}

// surveyOf returns how many requests may gain nothing before the pauses grow: two for each server.
func surveyOf(l *Ladder) int32 { return min(2*l.members, surveyLimit) }

// nothing schedules the next request if no server may be asked, or begins a new round at once
// if the pause after the last request is over.
func (r *LeaseSeeker) nothing(now int64, l *Ladder, rng *rand.PCG) (peer, below int32) {
	peer = none
	switch {
	case l.asking > 0, l.late > 0 && !l.Full():
		r.next = now + restBase // wait for the requests in progress
	case l.Full():
		r.restFull(now, rng)
	default:
		l.starved = l.members > 0
		r.round++
		r.survey = 0
		if r.level > fillTries(l) { // see short
			peer, below = r.choose(l, rng)
		}
		if peer == none {
			r.rest(fillLimit, r.level, now, rng)
		}
	}
	return peer, below
}

// wanted returns a server that a retry waits for and that has not been asked yet.
func (r *LeaseSeeker) wanted(l *Ladder) (peer, below int32) {
	if l.wanted == 0 {
		return none, 0
	}
	for place := range l.members {
		peer = l.memberAt(place)
		if p := &l.peers[peer]; p.wanted && p.request == noRequest {
			if _, ok := l.Bid(peer); ok && p.live() {
				return peer, NoSlot
			}
			l.unwant(p) // the ladder takes none of its slots any more
		}
	}
	return none, 0
}

// atOnce returns the maximum number of concurrent requests, without probes.
func atOnce(l *Ladder) int32 {
	if l.Full() {
		return 1
	}
	return fillAtOnce
}

// mayProbe reports whether another server may be probed. Without slots, silent servers do not delay
// the others: an overdue probe does not count.
func mayProbe(l *Ladder) bool {
	count := l.probing
	if l.held > 0 {
		count += l.lateProbes
	}
	return count < probeAtOnce && l.hasRoom()
}

// Wake returns the time of the next call of NextRequest if nothing changes before. A
// slot that leaves the ladder is a change.
func (r *LeaseSeeker) Wake(l *Ladder) int64 {
	wake := l.wake
	if l.checks {
		wake = min(wake, l.checkAt)
	}
	if mayProbe(l) {
		_, due := l.first(alarmProbe)
		wake = min(wake, due)
	}
	if l.asking >= atOnce(l) {
		return wake
	}
	wake = min(wake, r.next)
	if l.hasRoom() {
		_, due := l.first(alarmWelcome)
		wake = min(wake, due)
	}
	if r.hinted != 0 {
		wake = min(wake, r.hintAt)
	}
	return wake
}

// A LeaseResult is the result of a lease request.
type LeaseResult uint8

// The results of a lease request.
const (
	Granted  LeaseResult = iota // the ladder took the slot
	Declined                    // no slot below the number was free, or the ladder did not take it
	Failed                      // the server could not be asked; it is in quarantine
)

// Done ends a lease request.
func (r *LeaseSeeker) Done(now int64, l *Ladder, peer int32, answer LeaseResult, rng *rand.PCG) {
	p := &l.peers[peer]
	paced := p.request == timely
	l.endRequest(peer)
	if answer != Failed {
		l.heard(peer)
	}
	if answer == Granted || p.askedAny {
		l.unwant(p)
	}
	switch answer {
	case Granted:
		r.level, p.declined = 0, 0
		if l.Full() && (p.askedAny || r.survey > 0) {
			// Any slots have filled the ladder. A round finds the lower ones, and another one
			// those that other clients gave back meanwhile.
			r.survey = surveyOf(l)
		}
	case Declined:
		p.declined = r.round + 1
		if l.Full() {
			p.askedAny = false // the server may have higher slots
		}
	}
	switch {
	case !paced && answer != Granted:
		// The other requests have not waited for this one.
	case l.Full() && answer == Declined && r.survey > 0:
		r.survey--
		r.next = now + jitter(rng, restBase)
	case l.Full() && answer == Declined:
		r.restFull(now, rng)
	case l.Full():
		r.next = now + jitter(rng, swapRest)
	case answer == Declined && p.askedAny:
		r.short(now, l, rng)
	default:
		// Slots are missing. If the server declined, the request was for a lower
		// slot and predates the loss of others.
		r.next = now
	}
}

// RequestNow makes the next request due at once, after a slot was lost.
func (r *LeaseSeeker) RequestNow(now int64) { r.level, r.next = 0, now }

// Filling reports whether slots are missing and are likely to be found soon: the number of
// consecutive requests that gained nothing is below 8 and below the number of live servers.
func (r *LeaseSeeker) Filling(l *Ladder) bool { return !l.Full() && r.level < fillTries(l) }

// fillTries returns how many consecutive requests may gain nothing before the seeker
// slows down, while slots are missing.
func fillTries(l *Ladder) uint8 { return uint8(min(l.live, 8)) }

// short schedules the next request after a server had no free slot and slots are
// missing: at once for the first fillTries servers, with short pauses for the rest of
// the first round, then with growing ones.
func (r *LeaseSeeker) short(now int64, l *Ladder, rng *rand.PCG) {
	switch tries := fillTries(l); {
	case r.level < tries:
		r.level++
		r.next = now
	case r.survey > 0:
		r.survey--
		r.next = now + jitter(rng, restBase)
	default:
		r.rest(fillLimit, r.level-tries, now, rng)
	}
}

// restFull backs off with a full ladder. Lower slots are of no use to a client without requests,
// and thousands of idle clients would keep a server busy.
func (r *LeaseSeeker) restFull(now int64, rng *rand.PCG) {
	limit := int64(restLimit)
	if !r.used {
		limit = idleLimit
	}
	r.used = false
	r.rest(limit, r.level, now, rng)
}

// Used reports that a slot has served a request. It ends the long pause of an idle client; sooner
// means that Wake has changed.
func (r *LeaseSeeker) Used(now int64, rng *rand.PCG) (sooner bool) {
	if r.used {
		return false
	}
	r.used = true
	if r.next <= now+restLimit*3/2 { // the longest that jitter makes of restLimit
		return false
	}
	r.next = now + jitter(rng, restLimit)
	return true
}

// rest backs off after a request that gained nothing.
func (r *LeaseSeeker) rest(limit int64, level uint8, now int64, rng *rand.PCG) {
	r.next = now + jitter(rng, doubled(restBase, limit, level))
	if r.level < 62 {
		r.level++
	}
}

// Hint reports a server's lowest free slot, which each response carries. If the slot is
// lower than one in the ladder, the server is asked soon; taken means that Wake has
// changed.
func (r *LeaseSeeker) Hint(now int64, l *Ladder, peer, lowest int32, rng *rand.PCG) (taken bool) {
	if now < r.hintAt || !l.Full() || r.hinted != 0 {
		return false
	}
	p := &l.peers[peer]
	if top, ok := l.topFor(p); !ok || l.standing(top) >= p.standing() && p.level(lowest) >= l.slots[top].level {
		return false
	}
	// No other hint is accepted before that time, even if this one is not followed.
	r.hintAt = now + int64(uniform(rng, hintWithin)) + 1
	if below, ok := r.bid(l, peer); ok && lowest < below {
		r.hinted = peer + 1
	}
	return r.hinted != 0
}

// hint returns the server of a hint that is due.
func (r *LeaseSeeker) hint(now int64, l *Ladder) (peer, below int32) {
	if r.hinted == 0 || now < r.hintAt {
		return none, 0
	}
	peer = r.hinted - 1
	r.hinted = 0
	if below, ok := r.bid(l, peer); ok {
		return peer, below
	}
	return none, 0
}

// welcome returns the server that has been due for longest of those that are new or back.
// The times are random, so that each client asks them in another order.
func (r *LeaseSeeker) welcome(now int64, l *Ladder) (peer, below int32) {
	for l.hasRoom() {
		peer, due := l.first(alarmWelcome)
		if now < due {
			break
		}
		l.setAlarm(alarmWelcome, peer, never)
		if below, ok := r.bid(l, peer); ok {
			return peer, below
		} // otherwise the ladder takes none of its slots
	}
	return none, 0
}

// probe returns the server that has been due for longest of those that broke.
func (r *LeaseSeeker) probe(now int64, l *Ladder, rng *rand.PCG) (peer, below int32) {
	for mayProbe(l) {
		peer, due := l.first(alarmProbe)
		if now < due {
			break
		}
		if below, ok := r.bid(l, peer); ok {
			l.setAlarm(alarmProbe, peer, never)
			return peer, below
		}
		// The ladder takes none of its slots at present. No other request finds out
		// whether the server is back.
		l.setAlarm(alarmProbe, peer, now+jitter(rng, quarantineLimit))
	}
	return none, 0
}

// pick returns a uniformly random server of those that may be asked, connected or not.
// With a full ladder a new round begins when all servers have declined. A round starts
// with the servers without a slot in the ladder: the others report their lowest free
// slot with each response. A lower slot of one of the former is thus found before
// requests become rare.
func (r *LeaseSeeker) pick(l *Ladder, rng *rand.PCG) (peer, below int32) {
	if l.members == 0 {
		return none, 0
	}
	for range pickAttempt {
		peer = l.memberAt(int32(uniform(rng, uint64(l.members))))
		if below, ok := r.fresh(l, peer); ok && r.first(l, peer) {
			return peer, below
		}
	}
	// Few servers may be asked, or none: examine all.
	if peer, below = r.choose(l, rng); peer == none && l.Full() {
		r.round++
		peer, below = r.choose(l, rng)
	}
	return peer, below
}

// choose examines all servers and returns a random one that may be asked, if possible one
// that is first.
func (r *LeaseSeeker) choose(l *Ladder, rng *rand.PCG) (peer, below int32) {
	peer = none
	count, first := uint64(0), false
	for place := range l.members {
		candidate := l.memberAt(place)
		bid, ok := r.fresh(l, candidate)
		if !ok {
			continue
		}
		switch is := r.first(l, candidate); {
		case is && !first:
			count, first = 0, true
		case first && !is:
			continue
		}
		count++
		if uniform(rng, count) == 0 {
			peer, below = candidate, bid
		}
	}
	return peer, below
}

// first reports whether pick prefers a server: one without a slot in a full ladder; while
// slots are missing a near one, and a far one for the spare slots, which are leased last.
// A ladder without a near slot prefers none: its zone may be lost.
func (r *LeaseSeeker) first(l *Ladder, peer int32) bool {
	p := &l.peers[peer]
	if l.Full() {
		return p.held == 0
	}
	near := l.held - l.farHeld
	return near == 0 || p.far == (l.farShares > 0 && near >= l.size-l.spare())
}

// bid is Bid for a server without a lease request in progress.
func (r *LeaseSeeker) bid(l *Ladder, peer int32) (below int32, ok bool) {
	if l.peers[peer].request != noRequest {
		return 0, false
	}
	return l.Bid(peer)
}

// fresh is bid for a live server that has not declined in this round. While slots are
// missing, declining a request for a lower slot does not count.
func (r *LeaseSeeker) fresh(l *Ladder, peer int32) (below int32, ok bool) {
	if p := &l.peers[peer]; !p.live() || p.declined == r.round+1 && (p.askedAny || l.Full()) {
		return 0, false
	}
	return r.bid(l, peer)
}
