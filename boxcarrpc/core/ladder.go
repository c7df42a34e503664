package core

import (
	"math"
	"math/rand/v2"
)

const (
	never       = math.MaxInt64
	none  int32 = -1
)

type slotState uint8

const (
	slotUnused slotState = iota
	slotFree
	slotBusy
)

// A Slot is an entry of a ladder. Callers only make slices of it.
type Slot struct {
	order    uint64 // of two free slots the one with less has been idle longer
	loadAt   int64  // of rank rankIdle: when its server said so
	number   int32
	level    int32 // the number, divided by the server's weight
	peer     int32
	at       int32 // a free slot's place in the heap; an unused one's successor
	heap     int32 // not this slot's: the entry at this place of the heap
	load     int32 // of rank rankIdle: what its server said
	state    slotState
	rank     uint8
	retiring bool // busy, and leaves the ladder when it is released
}

// A Ladder is the slots that a client holds, of all servers, and the order in
// which they are used.
//
// Entries are named by their index in the slice of slots. An index belongs to a
// slot from Grant until Lose, or until Retire, Release or a later Grant says
// that the slot is gone; its number and server can be read until another Grant.
type Ladder struct {
	slots []Slot
	peers []Peer

	order    uint64
	size     int32
	held     int32 // entries in use, retiring ones left out
	busy     int32 // entries that are busy, retiring ones among them
	free     int32 // length of the heap
	unused   int32 // first unused entry
	members  int32 // servers in the set
	live     int32 // of these, neither in quarantine nor draining
	extent   int32 // no peer from here on was ever a member
	welcomes int32 // peers to be asked first
	usual    int32 // load that servers report, on average, times usualScale
	ejected  int32 // servers of the set that are

	welcomeAt  int64 // no welcome is due before
	liveWeight int64 // of the live servers, in 64ths
	wake       int64 // no quarantine, pause or ejection ends before
	faults     int64 // sum of the peers' faults

	checkEvery int64
	checkAt    int64 // no check is due before
	checks     bool

	top      int32 // the entry that goes first, if topKnown
	topKnown bool
}

// NewLadder makes an empty ladder for size slots. slots needs at least size+1
// elements: those beyond size hold slots that were replaced while busy, until
// their requests are done. peers has an element for each index of a server.
// The ladder keeps both slices.
func NewLadder(size int, slots []Slot, peers []Peer) Ladder {
	l := Ladder{slots: slots, peers: peers, size: int32(size), wake: never, welcomeAt: never}
	for i := range slots {
		slots[i] = Slot{at: int32(i) + 1}
	}
	slots[len(slots)-1].at = none
	return l
}

// Size is how many slots the ladder wants.
func (l *Ladder) Size() int { return int(l.size) }

// Held is how many slots the ladder has.
func (l *Ladder) Held() int { return int(l.held) }

// Busy is how many slots have a request, retiring ones among them.
func (l *Ladder) Busy() int { return int(l.busy) }

// Free is how many slots could have a request now.
func (l *Ladder) Free() int { return int(l.free) }

// Full reports whether the ladder has all the slots it wants.
func (l *Ladder) Full() bool { return l.held >= l.size }

// hasRoom reports whether there is an entry for another slot.
func (l *Ladder) hasRoom() bool { return l.unused != none }

// Slot tells of an entry in use: its number, its server, whether it has a
// request, and whether it is to leave.
func (l *Ladder) Slot(entry int32) (number, peer int32, busy, retiring, used bool) {
	s := &l.slots[entry]
	return s.number, s.peer, s.state == slotBusy, s.retiring, s.state != slotUnused
}

// Acquire takes the first free slot for a request.
func (l *Ladder) Acquire(now int64, rng *rand.PCG) (entry int32, ok bool) {
	l.Advance(now, rng)
	if l.free == 0 {
		return none, false
	}
	for l.slots[l.slots[0].heap].rank == rankIdle && l.expireLoad(now) {
	}
	entry = l.slots[0].heap
	l.take(entry)
	return entry, true
}

// AcquireOther takes the first free slot of a server that is not among the
// tried, for a further attempt. If it finds none, other says whether it is
// worth waiting for one: whether there are slots of other servers, all busy.
func (l *Ladder) AcquireOther(now int64, tried []int32, rng *rand.PCG) (entry int32, ok, other bool) {
	l.Advance(now, rng)
	entry = none
	for i := range l.slots {
		s := &l.slots[i]
		if s.state == slotUnused || s.retiring || contains(tried, s.peer) {
			continue
		}
		other = true
		if s.state == slotFree && (entry == none || l.before(int32(i), entry)) {
			entry = int32(i)
		}
	}
	if entry == none {
		return none, false, other
	}
	l.take(entry)
	return entry, true, true
}

func contains(list []int32, x int32) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

func (l *Ladder) take(entry int32) {
	l.remove(entry)
	s := &l.slots[entry]
	s.state = slotBusy
	l.busy++
	if p := &l.peers[s.peer]; !p.trusted && !p.onTrial {
		// One request finds out; until then the server's other slots are used
		// only if there are no better ones.
		p.onTrial = true
		l.rerank(s.peer)
	}
}

// An Outcome is what a request taught about its server.
type Outcome uint8

// The outcomes of a request whose slot is kept.
const (
	Neutral Outcome = iota // nothing, as when it was cancelled
	Success                // it answers requests well
	Refused                // it did not begin with the request
	Failure                // it failed, or did not answer in time
)

// Release ends the request of a busy slot. If gone, the slot has left the
// ladder and the caller gives it back to its server.
func (l *Ladder) Release(now int64, entry int32, outcome Outcome, rng *rand.PCG) (gone bool) {
	l.Advance(now, rng)
	s := &l.slots[entry]
	p := &l.peers[s.peer]
	l.busy--
	if s.retiring {
		l.drop(entry)
		gone = true
	} else {
		s.state = slotFree
		s.rank = l.rankOf(p)
		l.order++
		s.order = l.order
		l.insert(entry)
	}
	l.RecordOutcome(now, s.peer, outcome, rng)
	return gone
}

// RecordOutcome draws the conclusions of a request about its server.
func (l *Ladder) RecordOutcome(now int64, peer int32, outcome Outcome, rng *rand.PCG) {
	p := &l.peers[peer]
	switch outcome {
	case Success:
		p.quarantine.level, p.pause.level = 0, 0
		l.succeed(p)
		if !p.trusted {
			p.trusted, p.onTrial = true, false
			l.rerank(peer)
		}
	case Refused:
		l.endTrial(peer)
		l.pauseFor(now, peer, rng)
	case Failure:
		l.endTrial(peer)
		l.fail(now, peer, rng)
	default:
		l.endTrial(peer)
	}
}

func (l *Ladder) endTrial(peer int32) {
	if p := &l.peers[peer]; p.onTrial {
		p.onTrial = false
		l.rerank(peer)
	}
}

// Lose removes a slot whose lane is no more, whatever it is doing. A request
// that it had is not released any more.
func (l *Ladder) Lose(entry int32) {
	s := &l.slots[entry]
	switch s.state {
	case slotUnused:
		return
	case slotFree:
		l.remove(entry)
	case slotBusy:
		l.busy--
		l.endTrial(s.peer)
	}
	if !s.retiring {
		l.leave(entry)
	}
	l.drop(entry)
}

// Retire takes a slot out of the ladder: a free one at once, so that the caller
// gives it back, a busy one when it is released.
func (l *Ladder) Retire(entry int32) (gone bool) {
	s := &l.slots[entry]
	if s.retiring || s.state == slotUnused {
		return false
	}
	l.leave(entry)
	if s.state == slotBusy {
		s.retiring = true
		return false
	}
	l.remove(entry)
	l.drop(entry)
	return true
}

// leave takes an entry off the counts of what the ladder holds.
func (l *Ladder) leave(entry int32) {
	l.held--
	l.peers[l.slots[entry].peer].held--
	l.topKnown = false
}

// drop makes an entry that is not in the heap unused.
func (l *Ladder) drop(entry int32) {
	s := &l.slots[entry]
	s.state, s.retiring = slotUnused, false
	s.at, l.unused = l.unused, entry
}

// Bid says below which number a slot of the server would be welcome, NoSlot for
// any, and whether one would be at all.
func (l *Ladder) Bid(peer int32) (below int32, ok bool) {
	victim, ok := l.victimFor(peer)
	switch {
	case !ok:
		return 0, false
	case victim == none || l.standing(victim) < l.peers[peer].standing():
		return NoSlot, true
	}
	below = l.peers[peer].below(l.slots[victim].level)
	return below, below > 0
}

// victimFor returns the entry that a slot of the server would replace, none if
// there is room for it.
func (l *Ladder) victimFor(peer int32) (victim int32, ok bool) {
	p := &l.peers[peer]
	switch {
	case !p.live() || p.ejected || !l.hasRoom():
		return none, false
	case !l.Full():
		return none, p.held < l.laneCap(p)
	case p.held >= l.laneCap(p):
		// It has its share; only its own highest may become lower.
		return l.highest(peer), true
	}
	victim = l.highest(none)
	v := &l.peers[l.slots[victim].peer]
	proven, lower := v.trusted && !p.trusted, v.standing() < p.standing()
	switch {
	case v.standing() > p.standing():
		return none, false
	case proven && lower:
		// One slot to answer well; until then the ladder holds one more, see Surplus.
		return none, p.held == 0
	case proven && p.held > 0:
		// A server that has yet to answer well gets one slot to do so, not those
		// of servers that have; but it may be a better one than it has.
		return l.highest(peer), true
	}
	return victim, true
}

// standing is that of an entry's server.
func (l *Ladder) standing(entry int32) standing { return l.peers[l.slots[entry].peer].standing() }

// Surplus returns an entry to retire, if the ladder holds more than its size for
// no good reason any more. A slot of a server that has left, or is borrowed, and
// has answered well stays beside the first of a server that has yet to do so.
func (l *Ladder) Surplus() (entry int32, ok bool) {
	if l.held <= l.size {
		return none, false
	}
	victim := l.highest(none)
	trials := int32(0)
	for i := range l.slots {
		if s := &l.slots[i]; s.state != slotUnused && !s.retiring && !l.peers[s.peer].trusted && l.standing(int32(i)) > l.standing(victim) {
			trials++
		}
	}
	return victim, l.held-trials > l.size
}

// highest returns the entry that goes first: of a server that has left, else of
// one that is borrowed, else of the highest number, else a free one, else of the server with most slots. With
// a peer it looks at its slots only.
func (l *Ladder) highest(peer int32) int32 {
	if peer == none && l.topKnown {
		return l.top
	}
	best := none
	for i := range l.slots {
		s := &l.slots[i]
		if s.state == slotUnused || s.retiring || peer != none && s.peer != peer {
			continue
		}
		if best == none || l.goesBefore(s, &l.slots[best]) {
			best = int32(i)
		}
	}
	if peer == none {
		l.top, l.topKnown = best, true
	}
	return best
}

func (l *Ladder) goesBefore(a, b *Slot) bool {
	p, q := &l.peers[a.peer], &l.peers[b.peer]
	switch {
	case p.standing() != q.standing():
		return p.standing() < q.standing()
	case a.level != b.level:
		return a.level > b.level
	case (a.state == slotFree) != (b.state == slotFree):
		return a.state == slotFree
	}
	return int64(p.held)*q.weight() > int64(q.held)*p.weight()
}

// Grant offers the ladder a slot that a server gave. Whether it is welcome is
// decided now, since the ladder may have changed since the bid: if not ok, the
// caller hands it back. If it replaces another, victim is that entry, else -1;
// gone says that the victim has left at once and is to be given back, otherwise
// it will be when it is released. A number that the ladder already holds of this
// server is not welcome: a server gives each number once, and one that does not would draw
// more than its share of the requests.
func (l *Ladder) Grant(peer, number int32) (entry, victim int32, gone, ok bool) {
	victim, ok = l.victimFor(peer)
	if !ok || l.holds(peer, number) {
		return none, none, false, false
	}
	if victim != none {
		v := &l.slots[victim]
		if l.standing(victim) >= l.peers[peer].standing() && l.peers[peer].level(number) >= v.level {
			return none, none, false, false
		}
	}
	entry = l.unused
	s := &l.slots[entry]
	l.unused = s.at
	if victim != none {
		gone = l.Retire(victim)
	}
	l.order++
	s.number, s.level, s.peer, s.state, s.retiring = number, l.peers[peer].level(number), peer, slotFree, false
	s.rank, s.order = l.rankOf(&l.peers[peer]), l.order
	if victim == none && l.Full() && s.rank == rankHealthy {
		// The next request finds out whether another may go for it, or a client with
		// little to do would keep to servers that leave.
		s.rank = rankFirst
	}
	l.insert(entry)
	l.held++
	l.peers[peer].held++
	l.checkAt = 0
	l.topKnown = false
	return entry, victim, gone, true
}

// holds reports whether the ladder has the server's slot with this number.
func (l *Ladder) holds(peer, number int32) bool {
	for i := range l.slots {
		if s := &l.slots[i]; s.state != slotUnused && s.peer == peer && s.number == number {
			return true
		}
	}
	return false
}
