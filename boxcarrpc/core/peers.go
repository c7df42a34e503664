package core

import "math/rand/v2"

// The first and the maximum duration of quarantines and pauses, in nanoseconds.
const (
	quarantineBase  = 100e6 // after a broken connection or a failed dial
	quarantineLimit = 5e9
	pauseBase       = 20e6 // after a refused request
	pauseLimit      = 2e9

	// A server that is new or back from quarantine is asked before others, within
	// this time, so that the clients do not all ask it at once.
	welcomeWithin = 500e6

	// A lease request without an answer after this time is overdue.
	overdueAfter = 50e6
)

// A contact is a server's last answer or failure to answer.
type contact uint8

const (
	unknown  contact = iota // none yet
	answered                // answered a lease request, or a request successfully
	broken                  // its connection broke, or could not be made
)

// A request is the state of the lease request to a server. There is at most one.
type request uint8

const (
	noRequest request = iota
	timely            // counts for the limit of concurrent requests
	overdue           // no longer counts, because an answer is overdue
	probe             // to a broken server; counts for the limit of probes
	lateProbe         // no longer counts while the ladder holds no slots, because an answer is overdue
)

// A Peer is the state of a server in a ladder. The zero Peer is not in the set.
type Peer struct {
	quarantine backoff // no lease requests until it ends
	pause      backoff // slots rank last until it ends
	ejection   backoff // slots rank last and no lease requests until it ends
	overdueAt  int64   // when the lease request is overdue, if it is timely or a probe
	checkAt    int64   // time of the next check

	due   [alarms]int64 // the times of its alarms, if place is not 0
	place [alarms]int32 // the places of its alarms in the heaps, plus one; 0 for none
	at    int32         // the place in the list of members, if member
	links links         // of the lists, at the place that is the peer's index

	declined uint32 // the lease seeker's round, plus one, in which it declined
	fault    int32  // moving average of its failures, 0 to faultFull
	extra    int32  // weight above 1, in 64ths
	share    int32  // part of Ladder.shares: its weight while it answers
	own      int32  // part of Ladder.own: its weight while it is in the subset
	held     int32  // slots in the ladder, without retiring ones
	contact  contact
	request  request // the lease request in progress
	counted  bool    // in Ladder.live, and unless ejected in Ladder.sound
	member   bool    // in the set
	borrowed bool    // in the set until enough servers of the subset are back
	far      bool    // in another zone than the client
	isolated bool    // in quarantine
	draining bool    // leases no slots
	paused   bool    // refused a request recently
	suspect  bool    // silent
	ejected  bool    // fails requests
	checking bool    // a health check is in progress
	trusted  bool    // a request has succeeded since it last broke
	onTrial  bool    // not trusted; one request is testing it
	askedAny bool    // the lease request is for any slot, not only for a lower one
	wanted   bool    // a retry waits for its first slot, whatever the number
}

// leases reports whether the server may be asked for a slot, as a probe if it is broken.
func (p *Peer) leases() bool { return p.member && !p.isolated && !p.draining }

// live reports whether the server is expected to answer a lease request.
func (p *Peer) live() bool { return p.leases() && p.contact != broken }

// failing reports whether the server is draining, or broke and has not answered a
// request successfully since.
func (p *Peer) failing() bool { return p.draining || p.quarantine.level > 0 }

// A standing is a server's relation to the set. Slots of servers with a lower standing
// are replaced first, whatever their numbers.
type standing uint8

const (
	away     standing = iota // has left the set
	borrowed                 // in the set until enough servers of the subset are back
	owned                    // in the set
)

func (p *Peer) standing() standing {
	switch {
	case !p.member:
		return away
	case p.borrowed:
		return borrowed
	}
	return owned
}

// Join adds a server to the set. peer is below the length of the slice of peers. If the
// ladder holds slots, the new server is asked before others.
func (l *Ladder) Join(now int64, peer int32, rng *rand.PCG) { l.join(now, peer, false, rng) }

// Borrow adds a substitute server to the set. Its slots are replaced by any slot of a
// joined server and never replace those.
func (l *Ladder) Borrow(now int64, peer int32, rng *rand.PCG) { l.join(now, peer, true, rng) }

func (l *Ladder) join(now int64, peer int32, borrowed bool, rng *rand.PCG) {
	p := &l.peers[peer]
	if p.borrowed != borrowed {
		p.borrowed, l.topKnown = borrowed, false
		l.recount(p)
	}
	if p.member {
		return
	}
	p.member, l.starved = true, false
	p.at = l.members
	l.peers[p.at].links.member = peer
	l.members++
	l.recount(p)
	if l.held > 0 || p.contact == broken {
		l.greet(now, peer, rng)
	}
	l.topKnown = false
}

// memberAt returns the server at a place of the list of members.
func (l *Ladder) memberAt(place int32) int32 { return l.peers[place].links.member }

// Leave removes a server from the set. Its slots stay until others replace them, before
// the slots of other servers.
func (l *Ladder) Leave(peer int32) {
	p := &l.peers[peer]
	if !p.member {
		return
	}
	p.member = false
	l.members--
	last := l.memberAt(l.members)
	l.peers[p.at].links.member = last
	l.peers[last].at = p.at
	l.recount(p)
	l.resetFaults(peer)
	l.unwelcome(peer)
	l.unwant(p)
	l.topKnown = false
}

// Forget frees the index of a server that has left the set and has no slots, including
// retiring ones.
func (l *Ladder) Forget(peer int32) {
	l.endRequest(peer)
	for k := range alarms {
		l.setAlarm(k, peer, never)
	}
	p := &l.peers[peer]
	*p = Peer{links: p.links}
}

// Grow copies the peers to a longer slice, which the ladder retains.
func (l *Ladder) Grow(peers []Peer) {
	copy(peers, l.peers)
	l.peers = peers
}

// Quarantine stops lease requests to a server after a broken connection or a failed
// dial, for a time that doubles with each repetition. Afterwards the server is probed:
// until it answers, no other lease request depends on it. The caller removes its slots.
// A further connection that breaks meanwhile is no repetition: they broke together.
func (l *Ladder) Quarantine(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	again := p.isolated
	p.isolated, p.contact, p.trusted = true, broken, false
	l.recount(p)
	if !again {
		limit := int64(quarantineLimit)
		if l.live == 0 {
			limit = outageQuarantine
		}
		p.quarantine.enter(now, quarantineBase, limit, rng)
	}
	l.unwelcome(peer)
	l.schedule(peer)
	l.rerank(peer)
}

// heard records that a server has answered.
func (l *Ladder) heard(peer int32) {
	p := &l.peers[peer]
	p.contact = answered
	l.recount(p)
	if p.hasAlarm(alarmProbe) {
		l.setAlarm(alarmWelcome, peer, p.due[alarmProbe])
		l.setAlarm(alarmProbe, peer, never)
	}
}

// SetDraining stops lease requests to a server while it drains. The caller retires its
// slots. When draining ends, the server is asked before others.
func (l *Ladder) SetDraining(now int64, peer int32, draining bool, rng *rand.PCG) {
	p := &l.peers[peer]
	leased := p.leases()
	p.draining = draining
	l.recount(p)
	switch leases := p.leases(); {
	case leased && !leases:
		l.unwelcome(peer)
	case leases && !leased:
		l.greet(now, peer, rng)
	}
}

// SetSuspect ranks the slots of a server last while it is suspect.
func (l *Ladder) SetSuspect(peer int32, suspect bool) {
	l.peers[peer].suspect = suspect
	l.rerank(peer)
}

// Members returns the number of servers in the set.
func (l *Ladder) Members() int { return int(l.members) }

// Live returns the number of servers in the set that are expected to answer a lease
// request: they are not draining, and have not broken since their last answer.
func (l *Ladder) Live() int { return int(l.live) }

// WantOther makes a lease request due for a retry: to a live server that is not in tried
// and has no slot in the ladder, if possible one that has answered. The ladder takes the
// slot although it is full and the slot has a high number; see Surplus. WantOther reports
// whether there is such a server.
func (l *Ladder) WantOther(tried []int32, rng *rand.PCG) bool {
	chosen, count, known := none, uint64(0), false
	for place := range l.members {
		peer := l.memberAt(place)
		p := &l.peers[peer]
		if !p.live() || p.held > 0 || contains(tried, peer) {
			continue
		}
		if p.wanted {
			return true
		}
		switch first := p.contact == answered; {
		case p.ejected || !l.hasRoom() || known && !first:
			continue
		case first && !known:
			count, known = 0, true
		}
		count++
		if uniform(rng, count) == 0 {
			chosen = peer
		}
	}
	if chosen == none {
		return false
	}
	l.peers[chosen].wanted = true
	l.wanted++
	return true
}

// unwant ends WantOther for a server.
func (l *Ladder) unwant(p *Peer) {
	if p.wanted {
		p.wanted = false
		l.wanted--
	}
}

// Ejected returns the number of ejected servers.
func (l *Ladder) Ejected() int { return int(l.ejected) }

// PeerInfo is the state of a server.
type PeerInfo struct {
	Held     int  // slots in the ladder, without retiring ones
	Member   bool // in the set
	Borrowed bool // in the set until enough servers of the subset are back
	Far      bool // in another zone than the client
	Isolated bool // in quarantine, or has not answered since
	Draining bool // leases no slots
	Paused   bool // refused a request recently
	Ejected  bool // fails requests
	Suspect  bool // silent
	Trusted  bool // a request has succeeded since it last broke
}

// Peer returns the state of a server.
func (l *Ladder) Peer(peer int32) PeerInfo {
	p := &l.peers[peer]
	return PeerInfo{int(p.held), p.member, p.member && p.borrowed, p.far, p.contact == broken, p.draining, p.paused, p.ejected, p.suspect, p.trusted}
}

// pauseFor ranks the slots of a server last for a while after it refused a request.
func (l *Ladder) pauseFor(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	if p.paused {
		return // another of the requests that were in flight together
	}
	p.paused = true
	p.pause.enter(now, pauseBase, pauseLimit, rng)
	l.schedule(peer)
	l.rerank(peer)
}

// Advance ends the quarantines, pauses and ejections whose time is over, and finds the
// overdue lease requests. Every step with a time argument calls it; it costs one
// comparison if nothing is due.
func (l *Ladder) Advance(now int64, rng *rand.PCG) {
	for now >= l.wake {
		peer, _ := l.first(alarmChange)
		l.change(now, peer, rng)
		l.schedule(peer)
	}
}

// change makes the changes of a server's state that are due.
func (l *Ladder) change(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	if p.request == timely && now >= p.overdueAt {
		p.request = overdue
		l.asking--
		l.late++
		l.refill = true
	}
	if p.request == probe && now >= p.overdueAt {
		p.request = lateProbe
		l.probing--
		l.lateProbes++
	}
	if p.isolated && now >= p.quarantine.until {
		p.isolated = false
		if p.leases() {
			l.greet(now, peer, rng)
		}
	}
	l.recount(p)
	if p.paused && now >= p.pause.until {
		p.paused = false
		l.rerank(peer)
	}
	if p.ejected && now >= p.ejection.until {
		l.readmit(now, peer, rng)
	}
}

// schedule sets the alarm for the next change of a server's state.
func (l *Ladder) schedule(peer int32) {
	p := &l.peers[peer]
	due := int64(never)
	if p.request == timely || p.request == probe {
		due = p.overdueAt
	}
	if p.isolated {
		due = min(due, p.quarantine.until)
	}
	if p.paused {
		due = min(due, p.pause.until)
	}
	if p.ejected {
		due = min(due, p.ejection.until)
	}
	l.setAlarm(alarmChange, peer, due)
}

// greet makes the seeker ask a server before others, or probe it if it is broken: within
// welcomeWithin, or at once if the ladder holds no slots.
func (l *Ladder) greet(now int64, peer int32, rng *rand.PCG) {
	due := now
	if l.held > 0 {
		due += int64(uniform(rng, welcomeWithin))
	}
	kind := alarmWelcome
	if l.peers[peer].contact == broken {
		kind = alarmProbe
	}
	l.setAlarm(kind, peer, due)
}

func (l *Ladder) unwelcome(peer int32) {
	l.setAlarm(alarmWelcome, peer, never)
	l.setAlarm(alarmProbe, peer, never)
}

// beginRequest records a lease request.
func (l *Ladder) beginRequest(now int64, peer, below int32) {
	p := &l.peers[peer]
	p.askedAny, p.overdueAt = below == NoSlot, now+overdueAfter
	if p.contact == broken {
		p.request = probe
		l.probing++
	} else {
		p.request = timely
		l.asking++
	}
	l.schedule(peer)
}

// endRequest ends the lease request to a server, if there is one.
func (l *Ladder) endRequest(peer int32) {
	p := &l.peers[peer]
	ended := p.request
	p.request = noRequest
	switch ended {
	case timely:
		l.asking--
		l.schedule(peer)
	case overdue:
		l.late--
		l.recount(p)
	case probe:
		l.probing--
		l.schedule(peer)
	case lateProbe:
		l.lateProbes--
	}
}
