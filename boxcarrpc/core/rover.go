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

// A Rover decides which server a client asks for a slot next, and when.
type Rover struct {
	next   int64 // no question of its own before
	hintAt int64 // no hint is followed, and none is considered, before
	asking int32 // questions under way
	hinted int32 // the server of a hint, plus one; 0 for none
	level  uint8 // questions in a row that gained nothing
}

// Turn returns the next question, if one is due: which server to ask for a slot
// below which number. The caller dials it first where it must, asks, and calls
// Done, always. It calls Turn again at once after a question and after Done,
// and otherwise at the time that Wake says.
func (r *Rover) Turn(now int64, l *Ladder, rng *rand.PCG) (peer, below int32, ok bool) {
	l.Advance(now, rng)
	if r.asking >= atOnce(l) {
		return none, 0, false
	}
	peer, below = r.welcome(now, l, rng)
	if peer == none {
		peer, below = r.hint(now, l)
	}
	if peer == none && now >= r.next {
		peer, below = pick(l, rng)
		if peer == none {
			if r.asking == 0 {
				r.rest(now, l, rng)
			} else {
				r.next = now + restBase // the answer that is awaited comes first
			}
			return none, 0, false
		}
	}
	if peer == none {
		return none, 0, false
	}
	l.peers[peer].asked = true
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

// Wake is when Turn is to be called again if nothing happens until then.
func (r *Rover) Wake(l *Ladder) int64 {
	if r.asking >= atOnce(l) {
		return never
	}
	wake := min(r.next, l.wake)
	if l.welcomes > 0 {
		wake = min(wake, l.welcomeAt)
	}
	if r.hinted != 0 {
		wake = min(wake, r.hintAt)
	}
	return wake
}

// An Answer is how a question ended.
type Answer uint8

// The answers.
const (
	Gained   Answer = iota // the ladder took the slot
	Declined               // there was no slot below the number, or the ladder did not want it any more
	Failed                 // the server could not be asked; it is in quarantine
)

// Done ends a question.
func (r *Rover) Done(now int64, l *Ladder, peer int32, answer Answer, rng *rand.PCG) {
	l.peers[peer].asked = false
	r.asking--
	switch {
	case answer == Declined:
		r.rest(now, l, rng)
	case !l.Full():
		r.next = now
		if answer == Gained {
			r.level = 0
		}
	default:
		if answer == Gained {
			r.level = 0
		}
		r.next = now + jitter(rng, swapRest)
	}
}

// Hurry makes the next question due at once: a slot was lost.
func (r *Rover) Hurry(now int64) { r.level, r.next = 0, now }

// Filling reports whether slots are missing and there is hope to get them soon:
// no server has declined since one was gained or lost.
func (r *Rover) Filling(l *Ladder) bool { return !l.Full() && r.level == 0 && l.live > 0 }

// Hint tells that a server's lowest free slot is this one, as each answer to a
// request does. If that would better the ladder, the server is asked soon, and
// Wake has changed.
func (r *Rover) Hint(now int64, l *Ladder, peer, lowest int32, rng *rand.PCG) (taken bool) {
	if now < r.hintAt || !l.Full() || r.hinted != 0 {
		return false
	}
	if top := l.highest(none); lowest >= l.slots[top].number {
		return false
	}
	// Whatever comes of it, the next hint is looked at after a while.
	r.hintAt = now + int64(uniform(rng, hintWithin)) + 1
	if below, ok := l.bidFrom(peer); ok && lowest < below {
		r.hinted = peer + 1
	}
	return r.hinted != 0
}

// rest backs off after a question that gained nothing.
func (r *Rover) rest(now int64, l *Ladder, rng *rand.PCG) {
	limit := int64(restLimit)
	if !l.Full() {
		limit = fillLimit
	}
	r.next = now + jitter(rng, doubled(restBase, limit, r.level))
	if r.level < 62 {
		r.level++
	}
}

// hint returns the server of a hint whose time has come.
func (r *Rover) hint(now int64, l *Ladder) (peer, below int32) {
	if r.hinted == 0 || now < r.hintAt {
		return none, 0
	}
	peer = r.hinted - 1
	r.hinted = 0
	if below, ok := l.bidFrom(peer); ok {
		return peer, below
	}
	return none, 0
}

// welcome returns a server that is new or back and whose time has come, each as
// likely as the other.
func (r *Rover) welcome(now int64, l *Ladder, rng *rand.PCG) (peer, below int32) {
	if l.welcomes == 0 || now < l.welcomeAt {
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
		bid, ok := l.bidFrom(int32(i))
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
// connected or not.
func pick(l *Ladder, rng *rand.PCG) (peer, below int32) {
	if l.extent == 0 {
		return none, 0
	}
	for range pickAttempt {
		peer = int32(uniform(rng, uint64(l.extent)))
		if below, ok := l.bidFrom(peer); ok {
			return peer, below
		}
	}
	// Few may be asked, or none: choose among those that there are.
	peer = none
	count := uint64(0)
	for i := range l.peers[:l.extent] {
		if bid, ok := l.bidFrom(int32(i)); ok {
			count++
			if uniform(rng, count) == 0 {
				peer, below = int32(i), bid
			}
		}
	}
	return peer, below
}

// bidFrom is Bid, for a server that is not being asked already.
func (l *Ladder) bidFrom(peer int32) (below int32, ok bool) {
	if l.peers[peer].asked {
		return 0, false
	}
	return l.Bid(peer)
}
