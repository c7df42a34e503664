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
)

// A Peer is the state of a server in a ladder. The zero Peer is not in the set.
type Peer struct {
	quarantine backoff // no lease requests until it ends
	pause      backoff // slots rank last until it ends
	ejection   backoff // slots rank last and no lease requests until it ends
	welcomeAt  int64   // when it is asked before others, if welcome
	checkAt    int64   // time of the next check
	declined   uint32  // the lease seeker's round, plus one, in which it declined
	fault      int32   // moving average of its failures, 0 to faultFull
	extra      int32   // weight above 1, in 64ths
	held       int32   // slots in the ladder, without retiring ones
	member     bool    // in the set
	borrowed   bool    // in the set until enough servers of the subset are back
	isolated   bool    // in quarantine
	draining   bool    // leases no slots
	paused     bool    // refused a request recently
	suspect    bool    // silent
	ejected    bool    // fails requests
	checking   bool    // a health check is in progress
	trusted    bool    // a request has succeeded since it last broke
	onTrial    bool    // not trusted; one request is testing it
	asked      bool    // a lease request is in progress
	askedAny   bool    // the lease request is for any slot, not only for a lower one
	welcome    bool    // is to be asked before others
	wanted     bool    // a retry waits for its first slot, whatever the number
}

// live reports whether the server may be asked for a slot.
func (p *Peer) live() bool { return p.member && !p.isolated && !p.draining }

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
	}
	if p.member {
		return
	}
	p.member = true
	l.members++
	l.extent = max(l.extent, peer+1)
	if p.live() {
		l.countLive(p, 1)
	}
	if l.held > 0 {
		l.greet(now, p, rng)
	}
	l.topKnown = false
}

// Leave removes a server from the set. Its slots stay until others replace them, before
// the slots of other servers.
func (l *Ladder) Leave(peer int32) {
	p := &l.peers[peer]
	if !p.member {
		return
	}
	if p.live() {
		l.countLive(p, -1)
	}
	p.member = false
	l.members--
	l.resetFaults(peer)
	l.unwelcome(p)
	l.topKnown = false
}

// Forget frees the index of a server that has left the set and has no slots, including
// retiring ones.
func (l *Ladder) Forget(peer int32) {
	l.unwant(&l.peers[peer])
	l.peers[peer] = Peer{}
}

// Grow copies the peers to a longer slice, which the ladder retains.
func (l *Ladder) Grow(peers []Peer) {
	copy(peers, l.peers)
	l.peers = peers
}

// Quarantine stops lease requests to a server after a broken connection or a failed
// dial, for a time that doubles with each repetition. The caller removes its slots.
func (l *Ladder) Quarantine(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	if p.live() {
		l.countLive(p, -1)
	}
	p.isolated = true
	p.quarantine.enter(now, quarantineBase, quarantineLimit, rng)
	p.trusted = false
	l.unwelcome(p)
	l.wake = min(l.wake, p.quarantine.until)
	l.rerank(peer)
}

// SetDraining stops lease requests to a server while it drains. The caller retires its
// slots. When draining ends, the server is asked before others.
func (l *Ladder) SetDraining(now int64, peer int32, draining bool, rng *rand.PCG) {
	p := &l.peers[peer]
	was := p.live()
	p.draining = draining
	switch is := p.live(); {
	case was && !is:
		l.countLive(p, -1)
		l.unwelcome(p)
	case is && !was:
		l.countLive(p, 1)
		l.greet(now, p, rng)
	}
}

// SetSuspect ranks the slots of a server last while it is suspect.
func (l *Ladder) SetSuspect(peer int32, suspect bool) {
	l.peers[peer].suspect = suspect
	l.rerank(peer)
}

// Members returns the number of servers in the set.
func (l *Ladder) Members() int { return int(l.members) }

// Live returns the number of servers in the set that are neither in quarantine nor
// draining.
func (l *Ladder) Live() int { return int(l.live) }

// WantOther makes a lease request due for a retry: to a live server that is not in tried
// and has no slot in the ladder. The ladder takes the slot although it is full and the
// slot has a high number; see Surplus. WantOther reports whether there is such a server.
func (l *Ladder) WantOther(tried []int32, rng *rand.PCG) bool {
	chosen, count := none, uint64(0)
	for i := range l.peers[:l.extent] {
		p := &l.peers[i]
		if !p.live() || p.held > 0 || contains(tried, int32(i)) {
			continue
		}
		if p.wanted {
			return true
		}
		if p.ejected || !l.hasRoom() {
			continue
		}
		count++
		if uniform(rng, count) == 0 {
			chosen = int32(i)
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
	Isolated bool // in quarantine
	Draining bool // leases no slots
	Paused   bool // refused a request recently
	Ejected  bool // fails requests
	Suspect  bool // silent
	Trusted  bool // a request has succeeded since it last broke
}

// Peer returns the state of a server.
func (l *Ladder) Peer(peer int32) PeerInfo {
	p := &l.peers[peer]
	return PeerInfo{int(p.held), p.member, p.member && p.borrowed, p.isolated, p.draining, p.paused, p.ejected, p.suspect, p.trusted}
}

// pauseFor ranks the slots of a server last for a while after it refused a request.
func (l *Ladder) pauseFor(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	if p.paused {
		return // another of the requests that were in flight together
	}
	p.paused = true
	p.pause.enter(now, pauseBase, pauseLimit, rng)
	l.wake = min(l.wake, p.pause.until)
	l.rerank(peer)
}

// Advance ends the quarantines, pauses and ejections whose time is over. Every step
// with a time argument calls it; it costs one comparison if nothing is due.
func (l *Ladder) Advance(now int64, rng *rand.PCG) {
	if now < l.wake {
		return
	}
	l.wake = never
	for i := range l.peers[:l.extent] {
		p := &l.peers[i]
		if p.isolated {
			if now < p.quarantine.until {
				l.wake = min(l.wake, p.quarantine.until)
			} else {
				p.isolated = false
				if p.live() {
					l.countLive(p, 1)
					l.greet(now, p, rng)
				}
			}
		}
		if p.paused {
			if now < p.pause.until {
				l.wake = min(l.wake, p.pause.until)
			} else {
				p.paused = false
				l.rerank(int32(i))
			}
		}
		if p.ejected {
			if now < p.ejection.until {
				l.wake = min(l.wake, p.ejection.until)
			} else {
				l.readmit(now, int32(i), rng)
			}
		}
	}
}

// greet makes the seeker ask a server before others: within welcomeWithin, or at once
// if the ladder holds no slots.
func (l *Ladder) greet(now int64, p *Peer, rng *rand.PCG) {
	p.welcomeAt = now
	if l.held > 0 {
		p.welcomeAt += int64(uniform(rng, welcomeWithin))
	}
	if !p.welcome {
		p.welcome = true
		l.welcomes++
	}
	l.welcomeAt = min(l.welcomeAt, p.welcomeAt)
}

func (l *Ladder) unwelcome(p *Peer) {
	if p.welcome {
		p.welcome = false
		l.welcomes--
	}
}
