package core

import "math/rand/v2"

// How a rover paces itself, in nanoseconds.
const (
	restBase    = 50e6 // after a question that gained nothing, doubling
	restLimit   = 60e9 // to this, on a flat ladder
	fillLimit   = 1e9  // or to this, while slots are missing
	swapRest    = 20e6 // after a swap
	hintWithin  = 100e6
	fillAtOnce  = 4  // questions under way while slots are missing
	pickAttempt = 16 // random picks before the servers are counted
)

// A LeaseSeeker decides which server a client asks for a slot next, and when.
type LeaseSeeker struct {
	next   int64  // no question of its own before
	hintAt int64  // no hint is followed, and none is considered, before
	asking int32  // questions under way
	hinted int32  // the server of a hint, plus one; 0 for none
	round  uint32 // of questions: no server that declines is asked twice in one
	level  uint8  // questions in a row that gained nothing
}

// NextRequest returns the next question, if one is due: which server to ask for a slot
// below which number. The caller dials it first where it must, asks, and calls
// Done, always. It calls NextRequest again at once after a question and after Done,
// and otherwise at the time that Wake says.
func (r *LeaseSeeker) NextRequest(now int64, l *Ladder, rng *rand.PCG) (peer, below int32, ok bool) {
	l.Advance(now, rng)
	if r.asking >= atOnce(l) {
		return none, 0, false
	}
	peer, below = r.welcome(now, l, rng)
	if peer == none {
		peer, below = r.hint(now, l)
	}
	if peer == none && now >= r.next {
		peer, below = r.pick(l, rng)
		if peer == none {
			switch {
			case r.asking > 0:
				r.next = now + restBase // the answer that is awaited comes first
			case l.Full():
				r.rest(restLimit, r.level, now, rng)
			default:
				r.round++
				r.rest(fillLimit, r.level, now, rng)
			}
			return none, 0, false
		}
	}
	if peer == none {
		return none, 0, false
	}
	l.peers[peer].asked = true
	l.peers[peer].askedAny = below == NoSlot
	r.asking++
	return peer, below, true
}

// atOnce is how many questions may be under way.
func atOnce(l *Ladder) int32 {
	if l.Full() {
		return 1
	}
	return fillAtOnce
}

// Wake is when NextRequest is to be called again if nothing happens until then. That a
// slot has left the ladder is something.
func (r *LeaseSeeker) Wake(l *Ladder) int64 {
	if r.asking >= atOnce(l) {
		return never
	}
	wake := min(r.next, l.wake)
	if l.checks {
		wake = min(wake, l.checkAt)
	}
	if l.welcomes > 0 && l.hasRoom() {
		wake = min(wake, l.welcomeAt)
	}
	if r.hinted != 0 {
		wake = min(wake, r.hintAt)
	}
	return wake
}

// A LeaseResult is how a question ended.
type LeaseResult uint8

// The answers.
const (
	Granted  LeaseResult = iota // the ladder took the slot
	Declined                    // there was no slot below the number, or the ladder did not want it any more
	Failed                      // the server could not be asked; it is in quarantine
)

// Done ends a question.
func (r *LeaseSeeker) Done(now int64, l *Ladder, peer int32, answer LeaseResult, rng *rand.PCG) {
	p := &l.peers[peer]
	p.asked = false
	r.asking--
	switch answer {
	case Granted:
		r.level, p.declined = 0, 0
	case Declined:
		p.declined = r.round + 1
		if l.Full() {
			p.askedAny = false // there may be slots that are not wanted just now
		}
	}
	switch {
	case l.Full() && answer == Declined:
		r.rest(restLimit, r.level, now, rng)
	case l.Full():
		r.next = now + jitter(rng, swapRest)
	case answer == Declined && p.askedAny:
		r.short(now, l, rng)
	default:
		// Slots are missing, and if the server has declined, then to better
		// one: the question is from before others were lost.
		r.next = now
	}
}

// RequestNow makes the next question due at once: a slot was lost.
func (r *LeaseSeeker) RequestNow(now int64) { r.level, r.next = 0, now }

// Filling reports whether slots are missing and there is hope to get them soon:
// not as many servers as there are, or fillTries, have declined in a row.
func (r *LeaseSeeker) Filling(l *Ladder) bool { return !l.Full() && r.level < fillTries(l) }

// fillTries is how many questions in a row may gain nothing while slots are
// missing before the rover slows down.
func fillTries(l *Ladder) uint8 { return uint8(min(l.live, 8)) }

// short goes on after a server had no slot at all although any would have been
// welcome: at once with other servers, after some of them more and more slowly,
// and then with this one too.
func (r *LeaseSeeker) short(now int64, l *Ladder, rng *rand.PCG) {
	if tries := fillTries(l); r.level >= tries {
		r.round++
		r.rest(fillLimit, r.level-tries, now, rng)
		return
	}
	r.level++
	r.next = now
}

// rest backs off after a question that gained nothing.
func (r *LeaseSeeker) rest(limit int64, level uint8, now int64, rng *rand.PCG) {
	r.next = now + jitter(rng, doubled(restBase, limit, level))
	if r.level < 62 {
		r.level++
	}
}

// Hint tells that a server's lowest free slot is this one, as each answer to a
// request does. If that would better the ladder, the server is asked soon, and
// Wake has changed.
func (r *LeaseSeeker) Hint(now int64, l *Ladder, peer, lowest int32, rng *rand.PCG) (taken bool) {
	if now < r.hintAt || !l.Full() || r.hinted != 0 {
		return false
	}
	if top := l.highest(none); l.peers[peer].level(lowest) >= l.slots[top].level {
		return false
	}
	// Whatever comes of it, the next hint is looked at after a while.
	r.hintAt = now + int64(uniform(rng, hintWithin)) + 1
	if below, ok := r.bid(l, peer); ok && lowest < below {
		r.hinted = peer + 1
	}
	return r.hinted != 0
}

// hint returns the server of a hint whose time has come.
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

// welcome returns a server that is new or back and whose time has come, each as
// likely as the other.
func (r *LeaseSeeker) welcome(now int64, l *Ladder, rng *rand.PCG) (peer, below int32) {
	if l.welcomes == 0 || now < l.welcomeAt || !l.hasRoom() {
		return none, 0
	}
	peer = none
	l.welcomeAt = never
	due := uint64(0)
	for i := range l.peers[:l.extent] {
		p := &l.peers[i]
		if !p.welcome {
			continue
		}
		bid, ok := r.bid(l, int32(i))
		if !ok {
			l.unwelcome(p) // it has nothing to offer that would be wanted
			continue
		}
		l.welcomeAt = min(l.welcomeAt, p.welcomeAt)
		if now < p.welcomeAt {
			continue
		}
		due++
		if uniform(rng, due) == 0 {
			peer, below = int32(i), bid
		}
	}
	if peer != none {
		l.unwelcome(&l.peers[peer])
	}
	return peer, below
}

// pick returns a server that may be asked, each as likely as the other,
// connected or not. On a full ladder a round in which all have declined is
// followed by the next, and a round begins with the servers without a slot in the
// ladder: the others report their lowest free slot with each response, but
// these can only be asked. So one of them with a lower slot is found before the
// questions become rare.
func (r *LeaseSeeker) pick(l *Ladder, rng *rand.PCG) (peer, below int32) {
	if l.extent == 0 {
		return none, 0
	}
	for range pickAttempt {
		peer = int32(uniform(rng, uint64(l.extent)))
		if below, ok := r.fresh(l, peer); ok && (l.peers[peer].held == 0 || !l.Full()) {
			return peer, below
		}
	}
	// Few may be asked, or none: choose among those that there are.
	if peer, below = r.choose(l, rng); peer == none && l.Full() {
		r.round++
		peer, below = r.choose(l, rng)
	}
	return peer, below
}

// choose looks at every server and returns one that may be asked, on a full ladder
// one without a slot in it if there is one.
func (r *LeaseSeeker) choose(l *Ladder, rng *rand.PCG) (peer, below int32) {
	peer = none
	count, unheld := uint64(0), false
	for i := range l.peers[:l.extent] {
		bid, ok := r.fresh(l, int32(i))
		if !ok {
			continue
		}
		switch first := l.Full() && l.peers[i].held == 0; {
		case first && !unheld:
			count, unheld = 0, true
		case unheld && !first:
			continue
		}
		count++
		if uniform(rng, count) == 0 {
			peer, below = int32(i), bid
		}
	}
	return peer, below
}

// bid is Bid, for a server that is not being asked already.
func (r *LeaseSeeker) bid(l *Ladder, peer int32) (below int32, ok bool) {
	if l.peers[peer].asked {
		return 0, false
	}
	return l.Bid(peer)
}

// fresh is bid, for a server that has not declined in this round: where slots
// are missing, one that has not said that there are none at all.
func (r *LeaseSeeker) fresh(l *Ladder, peer int32) (below int32, ok bool) {
	if p := &l.peers[peer]; p.declined == r.round+1 && (p.askedAny || l.Full()) {
		return 0, false
	}
	return r.bid(l, peer)
}
