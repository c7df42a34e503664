package policy

import (
	"math/rand/v2"

	"docstore/boxcarrpc/core"
)

// Slots is Boxcar as a Policy: the client leases numbered slots from the servers,
// uses the lowest, and looks for lower ones. "Boxcar: A self-balancing distributed
// services protocol", Indeed Engineering, 2013. The rules are core.Client's, which
// boxcarrpc's Pool drives too; this type maps servers to its peers and its results to
// actions: a Connect asks for a slot below a number, a Disconnect gives one back.
type Slots struct {
	core.Client
	servers []int32  // by peer, -1 for an unused one
	vacant  []int32  // unused peers
	left    []leaver // servers that left the set and may have slots
	uses    []uint32 // by entry, counts the slots it held
	returns []Action
	tried   []int32
	weight  func(server int32) float64
	far     func(server int32) bool
	silence silence
}

// A leaver is a server that left the set. Its slots are given back at the given time
// if no others have replaced them.
type leaver struct {
	peer int32
	at   int64
}

// leaveAfter is how long the slots of a server that left the set stay in use, in
// nanoseconds.
const leaveAfter = 30e9

func newSlots(o *Options) *Slots {
	entries := o.Size + 1 + o.Size/8 // the rest for slots that were replaced while busy
	return &Slots{
		Client:  core.NewClient(o.Size, make([]core.Slot, entries), make([]core.Peer, o.Servers)),
		servers: make([]int32, 0, o.Servers),
		uses:    make([]uint32, entries),
		weight:  o.Weight,
		silence: silence{timeout: o.SilenceTimeout, next: never},
	}
}

// PreferZone makes the client use servers that are not far first. It is called before Join.
func (p *Slots) PreferZone(far func(server int32) bool) { p.far = far }

// Join implements Policy.
func (p *Slots) Join(now int64, server int32, rng *rand.PCG) {
	p.Client.Join(now, p.enter(server), rng)
}

// Borrow is Join for a substitute of servers that are dead: see core.Ladder.Borrow.
func (p *Slots) Borrow(now int64, server int32, rng *rand.PCG) {
	p.Client.Borrow(now, p.enter(server), rng)
}

// enter returns the peer of a server that is to join.
func (p *Slots) enter(server int32) int32 {
	if len(p.left) > 0 { // it may be one of these
		if peer := p.find(server, -1); peer >= 0 {
			return peer
		}
	}
	peer := int32(len(p.servers))
	if n := len(p.vacant); n > 0 {
		peer = p.vacant[n-1]
		p.vacant = p.vacant[:n-1]
		p.servers[peer] = server
	} else {
		if len(p.servers) == cap(p.servers) {
			p.Grow(make([]core.Peer, 2*cap(p.servers)))
			p.servers = append(make([]int32, 0, 2*cap(p.servers)), p.servers...)
		}
		p.servers = append(p.servers, server)
	}
	if p.weight != nil {
		p.SetWeight(peer, p.weight(server))
	}
	if p.far != nil {
		p.SetFar(peer, p.far(server))
	}
	return peer
}

// Leave implements Policy.
func (p *Slots) Leave(now int64, server int32, _ *rand.PCG) {
	if peer := p.find(server, -1); peer >= 0 && p.Peer(peer).Member {
		p.Client.Leave(peer)
		p.left = append(p.left, leaver{peer, now + leaveAfter})
		p.RequestNow(now)
	}
}

// find returns the peer of a server, or -1. hint is tried first.
func (p *Slots) find(server, hint int32) int32 {
	if hint >= 0 && int(hint) < len(p.servers) && p.servers[hint] == server {
		return hint
	}
	for i, s := range p.servers {
		if s == server {
			return int32(i)
		}
	}
	return -1
}

// Pick implements Policy.
func (p *Slots) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	p.tried = p.tried[:0]
	for _, server := range tried {
		p.tried = append(p.tried, p.find(server, -1))
	}
	entry, ok := p.Acquire(now, p.tried, rng)
	if !ok && len(p.tried) > 0 {
		entry, ok = p.Acquire(now, nil, rng) // a request does not wait here
	}
	if !ok {
		return Choice{}, false
	}
	return p.chosen(now, entry), true
}

func (p *Slots) chosen(now int64, entry int32) Choice {
	_, peer, _, _, _ := p.Slot(entry)
	p.silence.sent(now, peer)
	return Choice{Server: p.servers[peer], Entry: entry, use: p.uses[entry]}
}

// Hedge chooses another server than that of a request, if a slot is free.
func (p *Slots) Hedge(now int64, server int32, rng *rand.PCG) (Choice, bool) {
	p.tried = append(p.tried[:0], p.find(server, -1))
	entry, ok, _ := p.AcquireOther(now, p.tried, rng)
	if !ok {
		return Choice{}, false
	}
	return p.chosen(now, entry), true
}

// Expire records that a request has missed its deadline. Its slot stays busy until Done.
func (p *Slots) Expire(now int64, server int32, rng *rand.PCG) {
	if peer := p.find(server, -1); peer >= 0 {
		p.RecordOutcome(now, peer, core.Failure, rng)
	}
}

var outcomes = [...]core.Outcome{Neutral: core.Neutral, Success: core.Success, Refused: core.Refused}

// Done implements Policy.
func (p *Slots) Done(now int64, c Choice, r Result, rng *rand.PCG) {
	if p.uses[c.Entry] != c.use {
		return // the slot was lost
	}
	_, peer, _, _, _ := p.Slot(c.Entry)
	p.silence.heard(peer, true, r.Took)
	if r.Outcome == Broken {
		p.lose(c.Entry)
		p.RequestNow(now)
		return
	}
	gone, _ := p.Release(now, c.Entry, core.Response{Outcome: outcomes[r.Outcome], Load: r.Report.InFlight, Lowest: r.Report.Lowest}, rng)
	if gone {
		p.giveBack(c.Entry)
	}
	for entry, ok := p.Trim(); ok; entry, ok = p.Trim() {
		p.giveBack(entry)
	}
}

func (p *Slots) lose(entry int32) {
	p.Lose(entry)
	p.uses[entry]++
}

// giveBack returns the slot of an entry that has left the ladder to its server.
func (p *Slots) giveBack(entry int32) {
	number, peer, _, _, _ := p.Slot(entry)
	p.uses[entry]++
	p.returns = append(p.returns, Action{Kind: Disconnect, Server: p.servers[peer], Slot: number, Entry: peer})
}

// Next implements Policy.
func (p *Slots) Next(now int64, rng *rand.PCG) (Action, bool) {
	for len(p.left) > 0 && now >= p.left[0].at {
		p.forget(p.left[0].peer)
		p.left = p.left[1:]
	}
	if now >= p.silence.next {
		p.checkSilence(now, rng)
	}
	if n := len(p.returns); n > 0 {
		a := p.returns[n-1]
		p.returns = p.returns[:n-1]
		return a, true
	}
	peer, below, ok := p.NextRequest(now, rng)
	if !ok {
		return Action{}, false
	}
	return Action{Kind: Connect, Server: p.servers[peer], Below: below, Entry: peer}, true
}

// forget retires the slots of a server that left the set. If none is busy, its peer
// is free for another server; otherwise the peer stays in use.
func (p *Slots) forget(peer int32) {
	if p.Peer(peer).Member || p.retire(peer) {
		return
	}
	p.Forget(peer)
	p.servers[peer] = -1
	p.vacant = append(p.vacant, peer)
}

// retire takes the slots of a server out of the ladder and reports whether any of
// them is busy.
func (p *Slots) retire(peer int32) (busy bool) {
	p.each(peer, func(entry int32) {
		if p.Retire(entry) {
			p.giveBack(entry)
		} else {
			busy = true
		}
	})
	return busy
}

// each calls fn for the entries of a server.
func (p *Slots) each(peer int32, fn func(entry int32)) {
	for entry := range int32(len(p.uses)) {
		if _, of, _, _, used := p.Slot(entry); used && of == peer {
			fn(entry)
		}
	}
}

// Wake implements Policy.
func (p *Slots) Wake() int64 {
	wake := min(p.Client.Wake(), p.silence.next)
	if len(p.left) > 0 {
		wake = min(wake, p.left[0].at)
	}
	return wake
}

// Learn implements Policy.
func (p *Slots) Learn(now int64, n News, rng *rand.PCG) {
	peer := p.find(n.Server, n.Entry)
	if peer < 0 {
		return
	}
	switch n.Kind {
	case Probed:
		p.silence.heard(peer, false, 0)
	case Connected:
		p.grant(now, peer, n.Slot, rng)
	case Declined:
		p.Client.Done(now, peer, core.Declined, rng)
	case Failed:
		p.Quarantine(now, peer, rng)
		p.Client.Done(now, peer, core.Failed, rng)
	case Lost:
		p.lost(now, peer, rng)
	case Draining:
		p.retire(peer)
		p.SetDraining(now, peer, true, rng)
		p.RequestNow(now)
	}
}

// lost handles the end of all connections to a server.
func (p *Slots) lost(now int64, peer int32, rng *rand.PCG) {
	p.silence.reset(peer)
	p.each(peer, p.lose)
	if p.Peer(peer).Draining {
		p.SetDraining(now, peer, false, rng)
	}
	p.Quarantine(now, peer, rng)
	p.RequestNow(now)
}

// grant puts a slot into the ladder, or gives it back if the ladder does not want it
// any more.
func (p *Slots) grant(now int64, peer, number int32, rng *rand.PCG) {
	entry, victim, gone, ok := p.Grant(now, peer, number, rng)
	if !ok {
		p.returns = append(p.returns, Action{Kind: Disconnect, Server: p.servers[peer], Slot: number, Entry: peer})
		return
	}
	p.uses[entry]++
	if gone {
		p.giveBack(victim)
	}
}

// HoldsLowest reports whether no server has a free slot below the highest of the ladder.
// lowestFree returns the lowest free slot of a server that answers. A server counts only if
// the ladder may hold another of its slots: it has less than twice its share, and has answered
// a request or has no slot in the ladder.
func (p *Slots) HoldsLowest(lowestFree func(server int32) (lowest int32, ok bool)) bool {
	highest := int32(-1)
	for entry := range int32(len(p.uses)) {
		if number, _, _, retiring, used := p.Slot(entry); used && !retiring {
			highest = max(highest, number)
		}
	}
	answering, lowest := 0, core.NoSlot
	for _, server := range p.servers {
		if server >= 0 {
			if _, ok := lowestFree(server); ok {
				answering++
			}
		}
	}
	for peer, server := range p.servers {
		if server < 0 {
			continue
		}
		info := p.Peer(int32(peer))
		free, ok := lowestFree(server)
		if ok && info.Member && info.Held < max(2, 2*p.Size()/answering) && (info.Trusted || info.Held == 0) {
			lowest = min(lowest, free)
		}
	}
	return highest <= lowest
}
