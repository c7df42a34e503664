package policy

import (
	"math/rand/v2"

	"docstore/boxcarrpc/core"
)

// Slots is Boxcar: the client holds slots that the servers number, uses the lowest,
// and looks for lower ones. It is core's Ladder and Rover, as a Policy. "Boxcar: A
// self-balancing distributed services protocol", Indeed Engineering, 2013.
//
// A Connect asks for a slot below a number. What the ladder does not want is given
// back with Disconnect. A [Pool] has the same ladder and rover without this type
// around them.
//
// [Pool]: https://pkg.go.dev/docstore/boxcarrpc#Pool
type Slots struct {
	ladder  core.Ladder
	seeker  core.LeaseSeeker
	servers []int32  // by the ladder's index, -1 where there is none
	vacant  []int32  // indexes
	left    []leaver // servers that left the set and may have slots
	uses    []uint32 // of each entry
	returns []Action
	tried   []int32

	preferIdle bool
	weight     func(server int32) float64
}

// A leaver is a server that left the set.
type leaver struct {
	peer int32
	at   int64 // when its slots are given back, if no others have replaced them
}

// leaveAfter is how long the slots of a server that left the set may be used, in
// nanoseconds.
const leaveAfter = 30e9

func newSlots(o *Options) *Slots {
	entries := o.Size + 1 + o.Size/8 // some for slots that are replaced while busy
	return &Slots{
		ladder:  core.NewLadder(o.Size, make([]core.Slot, entries), make([]core.Peer, o.Servers)),
		servers: make([]int32, 0, o.Servers),
		uses:    make([]uint32, entries),

		preferIdle: o.PreferIdle, weight: o.Weight,
	}
}

// Join implements Policy.
func (p *Slots) Join(now int64, server int32, rng *rand.PCG) {
	peer := int32(len(p.servers))
	if n := len(p.vacant); n > 0 {
		peer = p.vacant[n-1]
		p.vacant = p.vacant[:n-1]
		p.servers[peer] = server
	} else {
		if len(p.servers) == cap(p.servers) {
			p.ladder.Grow(make([]core.Peer, 2*cap(p.servers)))
			p.servers = append(make([]int32, 0, 2*cap(p.servers)), p.servers...)
		}
		p.servers = append(p.servers, server)
	}
	if p.weight != nil {
		p.ladder.SetWeight(peer, p.weight(server))
	}
	p.ladder.Join(now, peer, rng)
}

// Leave implements Policy.
func (p *Slots) Leave(now int64, server int32, _ *rand.PCG) {
	if peer := p.find(server, -1); peer >= 0 && p.ladder.Peer(peer).Member {
		p.ladder.Leave(peer)
		p.left = append(p.left, leaver{peer, now + leaveAfter})
		p.seeker.RequestNow(now)
	}
}

// find returns the index of a server, which may be known, or -1.
func (p *Slots) find(server, peer int32) int32 {
	if peer >= 0 && int(peer) < len(p.servers) && p.servers[peer] == server {
		return peer
	}
	for i, s := range p.servers {
		if s == server {
			return int32(i)
		}
	}
	return -1
}

// Pick implements Policy.
func (p *Slots) Pick(now int64, q Query, rng *rand.PCG) (Choice, bool) {
	if len(q.Tried) > 0 {
		p.tried = p.tried[:0]
		for _, server := range q.Tried {
			p.tried = append(p.tried, p.find(server, -1))
		}
		if entry, ok, _ := p.ladder.AcquireOther(now, p.tried, rng); ok {
			return p.choice(entry)
		}
	}
	entry, ok := p.ladder.Acquire(now, rng)
	if !ok {
		return Choice{}, false
	}
	return p.choice(entry)
}

func (p *Slots) choice(entry int32) (Choice, bool) {
	_, peer, _, _, _ := p.ladder.Slot(entry)
	return Choice{Server: p.servers[peer], Entry: entry, use: p.uses[entry]}, true
}

var outcomes = [...]core.Outcome{Neutral: core.Neutral, Success: core.Success, Refused: core.Refused}

// Done implements Policy.
func (p *Slots) Done(now int64, c Choice, r Result, rng *rand.PCG) {
	if p.uses[c.Entry] != c.use {
		return // the slot was lost
	}
	if r.Outcome == Broken {
		p.lose(c.Entry)
		p.seeker.RequestNow(now)
		return
	}
	number, peer, _, _, _ := p.ladder.Slot(c.Entry)
	switch {
	case p.ladder.Release(now, c.Entry, outcomes[r.Outcome], rng):
		p.giveBack(c.Entry, peer, number)
	case p.preferIdle && r.Outcome == Success:
		p.ladder.ReportLoad(now, c.Entry, r.Report.InFlight)
	}
	p.trim()
	if r.Report.Lowest != core.NoSlot {
		p.seeker.Hint(now, &p.ladder, peer, r.Report.Lowest, rng)
	}
}

// trim gives back what the ladder held only until others had answered well.
func (p *Slots) trim() {
	for entry, ok := p.ladder.Surplus(); ok; entry, ok = p.ladder.Surplus() {
		number, peer, _, _, _ := p.ladder.Slot(entry)
		if p.ladder.Retire(entry) {
			p.giveBack(entry, peer, number)
		}
	}
}

func (p *Slots) lose(entry int32) {
	p.ladder.Lose(entry)
	p.uses[entry]++
}

func (p *Slots) giveBack(entry, peer, number int32) {
	p.uses[entry]++
	p.returns = append(p.returns, Action{Kind: Disconnect, Server: p.servers[peer], Slot: number, Entry: peer})
}

// Next implements Policy.
func (p *Slots) Next(now int64, rng *rand.PCG) (Action, bool) {
	for len(p.left) > 0 && now >= p.left[0].at {
		p.forget(p.left[0].peer)
		p.left = p.left[1:]
	}
	if n := len(p.returns); n > 0 {
		a := p.returns[n-1]
		p.returns = p.returns[:n-1]
		return a, true
	}
	peer, below, ok := p.seeker.NextRequest(now, &p.ladder, rng)
	if !ok {
		return Action{}, false
	}
	return Action{Kind: Connect, Server: p.servers[peer], Below: below, Entry: peer}, true
}

// forget gives back what is held of a server that left the set. Its index is
// another's only once nothing at all is held.
func (p *Slots) forget(peer int32) {
	if p.ladder.Peer(peer).Member {
		return
	}
	held := false
	p.each(peer, func(entry, number int32) {
		if p.ladder.Retire(entry) {
			p.giveBack(entry, peer, number)
		} else {
			held = true
		}
	})
	if held {
		return // its requests outlast the set by leaveAfter; the index stays taken
	}
	p.ladder.Forget(peer)
	p.servers[peer] = -1
	p.vacant = append(p.vacant, peer)
}

// each calls fn for the entries of a server.
func (p *Slots) each(peer int32, fn func(entry, number int32)) {
	for entry := range int32(len(p.uses)) {
		if number, of, _, _, used := p.ladder.Slot(entry); used && of == peer {
			fn(entry, number)
		}
	}
}

// Wake implements Policy.
func (p *Slots) Wake() int64 {
	wake := p.seeker.Wake(&p.ladder)
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
	case Connected:
		p.seeker.Done(now, &p.ladder, peer, p.grant(peer, n.Slot), rng)
	case Declined:
		p.seeker.Done(now, &p.ladder, peer, core.Declined, rng)
	case Failed:
		p.ladder.Quarantine(now, peer, rng)
		p.seeker.Done(now, &p.ladder, peer, core.Failed, rng)
	case Lost:
		p.each(peer, func(entry, _ int32) { p.lose(entry) })
		p.ladder.Quarantine(now, peer, rng)
		p.seeker.RequestNow(now)
	case Draining:
		p.each(peer, func(entry, number int32) {
			if p.ladder.Retire(entry) {
				p.giveBack(entry, peer, number)
			}
		})
		p.ladder.Quarantine(now, peer, rng)
		p.seeker.RequestNow(now)
	}
}

// grant puts a slot into the ladder, if it is still welcome.
func (p *Slots) grant(peer, number int32) core.LeaseResult {
	entry, victim, gone, ok := p.ladder.Grant(peer, number)
	if !ok {
		p.returns = append(p.returns, Action{Kind: Disconnect, Server: p.servers[peer], Slot: number, Entry: peer})
		return core.Declined
	}
	p.uses[entry]++
	if gone {
		number, of, _, _, _ := p.ladder.Slot(victim)
		p.giveBack(victim, of, number)
	}
	return core.Granted
}

// Ladder returns the ladder, to look at.
func (p *Slots) Ladder() *core.Ladder { return &p.ladder }
