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
	order    uint64 // the lower of two free slots has been idle longer
	loadAt   int64  // time of the load report; valid with rankIdle
	number   int32
	level    int32 // number divided by the server's weight
	peer     int32
	at       int32 // a free slot's place in the heap; an unused slot's successor
	heap     int32 // the entry at this place of the heap, unrelated to this slot
	load     int32 // reported load; valid with rankIdle
	state    slotState
	rank     uint8
	retiring bool // busy, and leaves the ladder when it is released
}

// A Ladder is the slots that a client holds, of all servers, and the order in which they
// are used.
//
// An entry is an index in the slice of slots. It belongs to a slot from Grant until
// Lose, or until Retire, Release or a later Grant returns that the slot is gone. Its
// number and server can be read until the next Grant.
type Ladder struct {
	slots []Slot
	peers []Peer

	order       uint64
	size        int32
	held        int32 // entries in use, without retiring ones
	busy        int32 // busy entries, including retiring ones
	free        int32 // length of the heap
	unused      int32 // first unused entry
	members     int32 // servers in the set
	owned       int32 // members that are not borrowed
	live        int32 // members that are expected to answer
	sound       int32 // of these, members that are not ejected
	asking      int32 // timely lease requests
	late        int32 // overdue lease requests
	probing     int32 // probes
	lateProbes  int32 // overdue probes
	averageLoad int32 // moving average of reported loads, times averageScale
	ejected     int32 // ejected members

	alarms  [alarms]int32 // lengths of the heaps
	wake    int64         // the first alarmChange
	shares  int64         // sum of the peers' share
	own     int64         // sum of the peers' own
	faults  int64         // sum of the peers' fault
	wanted  int32         // peers that are wanted
	refill  bool          // slots became missing, or servers have a larger share since
	starved bool          // slots are missing, and all live servers have refused one

	checkEvery int64
	checkAt    int64 // lower bound of the time of the next check
	checks     bool

	farShares int64  // of shares, those of far servers
	left      uint64 // requests that used far servers, without health checks
	farHeld   int32  // of held, slots of far servers
	farLoad   int32  // averageLoad of far servers
	explore   int32  // reports of near servers until a far one is tried
	cursor    int32  // the entry of the far slot that was tried last
	spilling  bool   // the bound of load is exceeded

	top      int32 // the entry that is replaced first, if topKnown
	nearTop  int32 // of the near servers, the entry that is replaced first, if topKnown
	topKnown bool
}

// NewLadder returns an empty ladder for size slots. slots has at least size+1 elements;
// those beyond size hold slots that were replaced while busy, until their requests end.
// peers has an element for each server index. The ladder retains both slices.
func NewLadder(size int, slots []Slot, peers []Peer) Ladder {
	l := Ladder{slots: slots, peers: peers, size: int32(size), wake: never, refill: true}
	for i := range slots {
		slots[i] = Slot{at: int32(i) + 1}
	}
	slots[len(slots)-1].at = none
	return l
}

// Size returns the number of slots that the ladder is for.
func (l *Ladder) Size() int { return int(l.size) }

// Held returns the number of slots in the ladder, without retiring ones.
func (l *Ladder) Held() int { return int(l.held) }

// Busy returns the number of slots with a request, including retiring ones.
func (l *Ladder) Busy() int { return int(l.busy) }

// Free returns the number of free slots.
func (l *Ladder) Free() int { return int(l.free) }

// Full reports whether the ladder holds at least Size slots.
func (l *Ladder) Full() bool { return l.held >= l.size }

// hasRoom reports whether there is an unused entry.
func (l *Ladder) hasRoom() bool { return l.unused != none }

// Slot returns an entry's slot number and server, and whether it is busy, retiring, and
// in use.
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
	l.use(entry)
	return entry, true
}

// AcquireOther takes the first free slot of a server outside tried, for a retry. If it
// is not ok, other reports whether the ladder has busy slots of such servers, so that
// waiting may help.
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
	l.use(entry)
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

// use takes a free slot for a request.
func (l *Ladder) use(entry int32) {
	if l.isFar(entry) {
		l.left++
	}
	l.take(entry)
}

// take takes a free slot for a request or a health check.
func (l *Ladder) take(entry int32) {
	l.remove(entry)
	s := &l.slots[entry]
	s.state = slotBusy
	l.busy++
	p := &l.peers[s.peer]
	if !p.trusted && !p.onTrial {
		// This request tests the server. Its other slots rank lower until it ends.
		p.onTrial = true
		l.rerank(s.peer)
	}
}

// An Outcome is the result of a request with regard to the server's health.
type Outcome uint8

// The outcomes of a request whose slot is kept.
const (
	Neutral Outcome = iota // no information, as after a cancellation
	Success                // the server answered
	Refused                // the server did not start the request
	Failure                // the request failed or timed out
)

// Release ends the request of a busy slot. If gone, the slot has left the ladder and
// the caller gives it back to its server.
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

// RecordOutcome updates the health of a server after a request.
func (l *Ladder) RecordOutcome(now int64, peer int32, outcome Outcome, rng *rand.PCG) {
	p := &l.peers[peer]
	switch outcome {
	case Success:
		if p.contact != answered {
			l.heard(peer)
		}
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

// Lose removes a slot whose lane has ended, in any state. A request on it must not be
// released afterwards.
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

// Retire removes a slot from the ladder. If gone, the slot was free and the caller gives
// it back; otherwise it is busy and leaves the ladder when it is released.
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

// leave subtracts an entry from the counts of held slots.
func (l *Ladder) leave(entry int32) {
	l.refill = l.refill || l.held == l.size
	l.countHeld(l.slots[entry].peer, -1)
	l.topKnown = false
}

// countHeld adds (sign 1) or removes (sign -1) a held slot of a server.
func (l *Ladder) countHeld(peer, sign int32) {
	p := &l.peers[peer]
	l.held += sign
	p.held += sign
	if p.far {
		l.farHeld += sign
	}
}

// drop makes an entry unused. It is not in the heap.
func (l *Ladder) drop(entry int32) {
	s := &l.slots[entry]
	s.state, s.retiring = slotUnused, false
	s.at, l.unused = l.unused, entry
}

// Bid returns the limit of a lease request to the server: the ladder takes slots below
// it; NoSlot means any slot. It is not ok if the ladder takes no slot of the server.
func (l *Ladder) Bid(peer int32) (below int32, ok bool) {
	victim, ok := l.Victim(peer)
	switch {
	case !ok:
		return 0, false
	case victim == none || l.yields(victim, &l.peers[peer]):
		return NoSlot, true
	}
	below = l.peers[peer].below(l.slots[victim].level)
	return below, below > 0
}

// Victim returns the entry that a slot of the server would replace, or -1 if there is room. It
// is not ok if the ladder takes no slot of the server.
func (l *Ladder) Victim(peer int32) (victim int32, ok bool) {
	p := &l.peers[peer]
	switch {
	case !p.leases() || p.ejected && l.sound > 0 || !l.hasRoom():
		return none, false
	case p.wanted && p.held == 0:
		return none, true
	case !l.Full():
		return none, p.held < l.laneCap(p)
	case p.held >= l.laneCap(p):
		// The server is at its limit: it may replace only its own highest slot.
		return l.highest(peer), true
	}
	if victim, ok = l.topFor(p); !ok {
		return none, false
	}
	v := &l.peers[l.slots[victim].peer]
	proven, lower := v.trusted && !p.trusted, v.standing() < p.standing()
	switch {
	case v.standing() > p.standing():
		return none, false
	case proven && lower:
		// One slot for the request that tests the server. Until it succeeds the
		// ladder holds one slot more: see Surplus.
		return none, p.held == 0
	case proven && p.held > 0:
		// An untrusted server has only one slot and does not replace those of
		// trusted servers. It may lower its own.
		return l.highest(peer), true
	}
	return victim, true
}

// yields reports whether an entry is replaced by a slot of the server with any number.
func (l *Ladder) yields(victim int32, p *Peer) bool {
	return l.standing(victim) < p.standing() || p.far && !l.isFar(victim) && l.farHeld < l.spare()
}

// standing returns the standing of an entry's server.
func (l *Ladder) standing(entry int32) standing { return l.peers[l.slots[entry].peer].standing() }

// Surplus returns an entry to retire if the ladder holds too many slots. It may hold one
// more than its size for each untrusted server whose slot is to replace one of a server
// with a lower standing. The slot of a server that was wanted is retired when the retry has
// it, and leaves when the retry ends.
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

// highest returns the entry to replace first: of the lowest standing, then of the
// highest level, then a free one, then of the server with the most slots for its
// weight. If peer is not none, only the slots of this server are considered.
func (l *Ladder) highest(peer int32) int32 {
	if peer == none && l.topKnown {
		return l.top
	}
	best, near := none, none
	for i := range l.slots {
		s := &l.slots[i]
		if s.state == slotUnused || s.retiring || peer != none && s.peer != peer {
			continue
		}
		if best == none || l.goesBefore(s, &l.slots[best]) {
			best = int32(i)
		}
		if !l.isFar(int32(i)) && (near == none || l.goesBefore(s, &l.slots[near])) {
			near = int32(i)
		}
	}
	if peer == none {
		l.top, l.nearTop, l.topKnown = best, near, true
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

// Grant offers the ladder a slot that a server leased. If it is not ok, the caller gives
// the slot back: the ladder may have changed since Bid. If the slot replaces another,
// victim is that entry, otherwise -1. If gone, the victim has left the ladder and the
// caller gives it back; otherwise it leaves when it is released. A number that the
// ladder holds already is refused: a server that leases a number twice would get more
// than its share of the requests.
func (l *Ladder) Grant(peer, number int32) (entry, victim int32, gone, ok bool) {
	victim, ok = l.Victim(peer)
	if !ok || l.holds(peer, number) {
		return none, none, false, false
	}
	if victim != none {
		v := &l.slots[victim]
		if !l.yields(victim, &l.peers[peer]) && l.peers[peer].level(number) >= v.level {
			return none, none, false, false
		}
	}
	entry, gone = l.add(peer, number, victim)
	return entry, victim, gone, true
}

// Move replaces an entry by a slot of the same server, which the client leased on another
// connection. If gone, the victim has left the ladder and the caller gives it back; otherwise it
// leaves when it is released. If it is not ok, the caller gives the new slot back.
func (l *Ladder) Move(victim, number int32) (entry int32, gone, ok bool) {
	v := &l.slots[victim]
	if !l.hasRoom() || v.state == slotUnused || v.retiring || l.holds(v.peer, number) {
		return none, false, false
	}
	entry, gone = l.add(v.peer, number, victim)
	return entry, gone, true
}

// add puts a slot into an unused entry, in the place of victim if it is not none.
func (l *Ladder) add(peer, number, victim int32) (entry int32, gone bool) {
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
		// The next request tests the server. Otherwise a client with little load
		// would continue to use servers that have left.
		s.rank = rankFirst
	}
	l.insert(entry)
	l.countHeld(peer, 1)
	l.starved = false
	l.checkAt = 0
	l.topKnown = false
	return entry, gone
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
