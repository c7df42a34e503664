package boxcarrpc

import "docstore/boxcarrpc/internal/wire"

// takeNotice takes a server's word that it is about to stop, is being drained, or
// is not any more.
func (p *Pool) takeNotice(t *transport, what wire.Type, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.leaving || t.lost {
		return
	}
	p.options.Logger.Debug("server speaks", "server", t.peer.address, "frame", what, "reason", reason)
	switch what {
	case wire.TypeGoAway:
		p.goingAway(t)
	case wire.TypeDrain:
		p.setDraining(t, true)
		p.retireLanes(t)
	default:
		p.setDraining(t, false)
	}
	p.mu.ladder.RequestNow(p.now())
	p.step()
	p.serveWaiters()
}

// goingAway gives back the free slots of a transport at once, the busy ones when
// they are done, and leaves its server alone for a while. p.mu is held.
func (p *Pool) goingAway(t *transport) {
	p.retire(t)
	p.mu.ladder.Quarantine(p.now(), t.peer.index, &p.mu.rng)
}

// setDraining takes note of whether the server of a transport gives out slots. It
// does not while any of its transports says so. p.mu is held.
func (p *Pool) setDraining(t *transport, draining bool) {
	if t.draining == draining {
		return
	}
	t.draining, t.idleSince = draining, p.now()
	for _, other := range t.peer.transports {
		draining = draining || other.draining
	}
	if p.mu.ladder.Peer(t.peer.index).Draining != draining {
		p.mu.ladder.SetDraining(p.now(), t.peer.index, draining, &p.mu.rng)
	}
}

// retire takes the slots of a transport out of the ladder and closes it when
// the last of them is done. p.mu is held.
func (p *Pool) retire(t *transport) {
	t.leaving = true
	p.retireLanes(t)
	p.emptied(t)
}

// retireLanes gives back the free slots of a transport at once, the busy ones when
// they are done. p.mu is held.
func (p *Pool) retireLanes(t *transport) {
	for _, lane := range p.lanesOf(t) {
		if p.mu.ladder.Retire(lane.entry) {
			p.giveBack(lane)
		}
	}
}

// unneeded reports whether a transport has carried nothing for a while, and is not
// the one on which a server that is being drained will say that it is not any
// more. p.mu is held.
func (p *Pool) unneeded(t *transport, now int64) bool {
	if t.leased > 0 || t.streams > 0 || t.leaving || t.draining && t == t.peer.transports[0] {
		return false
	}
	return now-t.idleSince >= int64(idleTransport)
}
