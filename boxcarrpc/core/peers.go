package core

import (
	"math/rand/v2"
	"slices"
)

// How long a server is left alone, in nanoseconds: at first, and at most.
const (
	quarantineBase  = 100e6 // after a broken connection or a failed dial
	quarantineLimit = 5e9
	pauseBase       = 20e6 // after it refused a request
	pauseLimit      = 2e9

	// A server that is new in the set or back from quarantine is asked first,
	// within this time, so that not all clients come at once.
	welcomeWithin = 500e6
)

// A Peer is a server as a ladder knows it. The zero Peer is not in the set.
type Peer struct {
	quarantine backoff // no new lease before it ends
	pause      backoff // ranks last until it ends
	ejection   backoff // ranks last, and is not asked, until it ends
	welcomeAt  int64   // when it is asked first
	checkAt    int64   // no check before
	declined   uint32  // the rover's round, plus one, in which it declined
	fault      int32   // average of its failures, 0 to faultFull
	extra      int32   // weight above 1, in 64ths
	held       int32   // slots in the ladder, retiring ones left out
	member     bool    // in the set
	borrowed   bool    // of the set, but only until better ones are back
	isolated   bool    // in quarantine
	draining   bool    // gives out no slots until it says otherwise
	paused     bool
	suspect    bool
	ejected    bool // fails requests
	checking   bool // a check is under way
	trusted    bool // has answered a request well since it last broke
	onTrial    bool // not trusted, and has the one request that finds out
	asked      bool // the rover waits for its answer
	askedAny   bool // whether any slot would do, or only a better one
	welcome    bool // is to be asked first
}

// live reports whether the server may be asked for a slot.
func (p *Peer) live() bool { return p.member && !p.isolated && !p.draining }

// failing reports whether the server has not answered a request well since it
// broke last, or says that it takes none.
func (p *Peer) failing() bool { return p.draining || p.quarantine.level > 0 }

// A standing is what right a server has to its slots: those of a lower standing
// are the first to be replaced, whatever their numbers.
type standing uint8

const (
	away     standing = iota // has left the set
	borrowed                 // in the set until better ones are back
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

// Join puts a server, by an index below the length of the slice of peers, into
// the set. One that joins a ladder which already holds slots is asked first.
func (l *Ladder) Join(now int64, peer int32, rng *rand.PCG) { l.join(now, peer, false, rng) }

// Borrow puts a server into the set that is only to help out: any slot of one that
// has joined replaces its slots, and it replaces none of theirs.
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

// Leave takes a server out of the set. Its slots stay until others replace
// them: they are the first to go.
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
	l.absolve(peer)
	l.unwelcome(p)
	l.topKnown = false
}

// Forget makes the index of a server that left and has no slots, not even
// retiring ones, free for another.
func (l *Ladder) Forget(peer int32) { l.peers[peer] = Peer{} }

// Grow moves the peers to a longer slice.
func (l *Ladder) Grow(peers []Peer) {
	copy(peers, l.peers)
	l.peers = peers
}

// Quarantine keeps a server whose connection broke, or could not be made, from
// being asked for a time that doubles with each repetition. Its slots are the
// caller's to remove.
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

// SetDraining keeps a server that said so from being asked until it says otherwise,
// and then has it asked first. Its slots are the caller's to retire.
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

// SetSuspect ranks the slots of a server last while it is silent.
func (l *Ladder) SetSuspect(peer int32, suspect bool) {
	l.peers[peer].suspect = suspect
	l.rerank(peer)
}

// Members is how many servers are in the set.
func (l *Ladder) Members() int { return int(l.members) }

// Live is how many servers of the set are neither in quarantine nor draining.
func (l *Ladder) Live() int { return int(l.live) }

// AskedOther reports whether a live server outside tried is being asked for a slot.
func (l *Ladder) AskedOther(tried []int32) bool {
	for i := range l.peers[:l.extent] {
		if p := &l.peers[i]; p.asked && p.live() && !slices.Contains(tried, int32(i)) {
			return true
		}
	}
	return false
}

// Ejected is how many servers of the set are left out because they fail requests.
func (l *Ladder) Ejected() int { return int(l.ejected) }

// A PeerInfo is what a ladder knows of a server.
type PeerInfo struct {
	Held     int  // its slots in the ladder, retiring ones left out
	Member   bool // in the set
	Borrowed bool // of the set, but only until better ones are back
	Isolated bool // in quarantine
	Draining bool // gives out no slots
	Paused   bool // refused a request lately
	Ejected  bool // fails requests
	Suspect  bool // silent
	Trusted  bool // has answered a request well
}

// Peer tells what the ladder knows of a server.
func (l *Ladder) Peer(peer int32) PeerInfo {
	p := &l.peers[peer]
	return PeerInfo{int(p.held), p.member, p.member && p.borrowed, p.isolated, p.draining, p.paused, p.ejected, p.suspect, p.trusted}
}

// pauseFor ranks a server that refused a request last for a while.
func (l *Ladder) pauseFor(now int64, peer int32, rng *rand.PCG) {
	p := &l.peers[peer]
	if p.paused {
		return // one refusal of many that were under way at once
	}
	p.paused = true
	p.pause.enter(now, pauseBase, pauseLimit, rng)
	l.wake = min(l.wake, p.pause.until)
	l.rerank(peer)
}

// Advance ends the quarantines, pauses and ejections that are over. Every step that is
// given a time does it first; it costs a comparison when nothing is due.
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

// greet has a server asked first: soon where the ladder holds slots, at once
// where it holds none.
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
