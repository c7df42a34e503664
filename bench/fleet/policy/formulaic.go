package policy

import "math/rand/v2"

// keepAlive is the time in which each server is probed once.
const keepAlive = 10e9

// formulaic is approach 1 of "10,000 frontends, 1,000,000 backends". A client uses a fixed
// set of servers (100 there) in turn and probes them to detect broken connections, which
// it skips until they are restored. The balance is that of the formula for the sets;
// differences of load between clients are not balanced. With a limit of connections, a server whose
// connections all have a request is skipped, and a request without a connection is refused.
type formulaic struct {
	roundRobin
	conns  int32 // to a server, each for one request at a time
	probe  int64 // when the next probe is due
	probed int32 // entry that was probed last
}

func newFormulaic(o *Options) *formulaic {
	return &formulaic{roundRobin: roundRobin{set: newSet(o)}, conns: int32(o.Connections)}
}

// Pick implements Policy.
func (p *formulaic) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	for range p.ready {
		c, ok := p.roundRobin.Pick(now, tried, rng)
		if !ok || p.conns == 0 || p.members[c.Entry].inFlight <= p.conns {
			return c, ok
		}
		p.members[c.Entry].inFlight--
	}
	return Choice{}, false
}

// Next implements Policy. Probes are spread evenly over the period.
func (p *formulaic) Next(now int64, rng *rand.PCG) (Action, bool) {
	if a, ok := p.next(now); ok {
		return a, true
	}
	if len(p.ready) == 0 || now < p.probe {
		return Action{}, false
	}
	pause := max(1, keepAlive/int64(len(p.members)))
	if p.probe == 0 { // the first: clients that were started together do not probe together
		p.probe = now + 1 + uniform(rng, pause)
		return Action{}, false
	}
	p.probe = now + pause
	for range p.members {
		p.probed = (p.probed + 1) % int32(len(p.members))
		if m := &p.members[p.probed]; m.place >= 0 {
			return Action{Kind: Probe, Server: m.server, Entry: p.probed}, true
		}
	}
	return Action{}, false
}

// Wake implements Policy.
func (p *formulaic) Wake() int64 {
	if len(p.ready) == 0 {
		return p.wake
	}
	return min(p.wake, p.probe)
}
