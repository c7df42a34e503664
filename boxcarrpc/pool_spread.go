package boxcarrpc

import (
	"time"

	"docstore/boxcarrpc/core"
)

// A pool has as many transports to a server as core.Connections says for its lanes and responses.
// With each it gets more lanes: they move from one transport to another, one at a time. A new slot
// is leased first, and the other one is given back when it is free, so that the pool never has fewer
// slots than before.
//
// Lanes move after the number of transports has changed, and if exchanges of slots have made them
// uneven by more than maxDifference. The new slot of a lane that moves has a higher number, for which the
// pool exchanges lower ones, also of other servers, and that makes transports uneven by up to two: if
// lanes moved then, they would do so for ever.

const (
	// spreadPause is the time for which the number of transports to a server does not change after
	// the server has refused another connection or slot.
	spreadPause = 10 * time.Second
	// Transports are closed only if thinSlack more lanes would not need them, so that none is opened
	// again for the next lane.
	thinSlack = 2
	// maxDifference is the maximum difference between the lanes of two transports for which none
	// move.
	maxDifference = 2
	// averageOf is the number of responses that count for the average of their sizes.
	averageOf = 32
)

// emptiest returns the transport with the fewest lanes, without replaced, that has room for another
// one, or nil. Of several servers behind the address it returns the first one. members.mu is held.
func (p *poolPeer) emptiest(replaced *clientLane) (best *transport) {
	least := 0
	for _, t := range p.transports {
		lanes := t.leased
		if replaced != nil && replaced.transport == t {
			lanes--
		}
		if !t.leaving && t.leased < t.maxLanes() && (best == nil || lanes < least && !p.shared) {
			best, least = t, lanes
		}
	}
	return best
}

// fullest returns the transport with the most lanes, if possible one that is thinning, or nil.
// members.mu is held.
func (p *poolPeer) fullest() (best *transport) {
	for _, t := range p.transports {
		switch {
		case t.leaving && !t.thinning:
		case best == nil, t.thinning && !best.thinning && t.leased > 0, t.thinning == best.thinning && t.leased > best.leased:
			best = t
		}
	}
	return best
}

// responseBytes returns the average size of the server's responses. members.mu is held.
func (p *poolPeer) responseBytes() int64 {
	var lanes, sum int64
	for _, t := range p.transports {
		t.mu.Lock()
		sum += t.mu.responseBytes * int64(t.leased)
		t.mu.Unlock()
		lanes += int64(t.leased)
	}
	return sum / max(lanes, 1)
}

// connections returns how many transports a number of lanes on a server needs, and how many get
// lanes. m.mu is held.
func (m *members) connections(peer *poolPeer, lanes int) (need, have int) {
	for _, t := range peer.transports {
		if !t.leaving {
			have++
		}
	}
	perConn := m.options.LanesPerConn
	need = (lanes + perConn - 1) / perConn
	if !peer.shared {
		need = max(need, core.Connections(lanes, peer.responseBytes()))
	}
	return need, have
}

// needsTransport reports whether a number of lanes on a server needs another transport, and the
// server may allow it. m.mu is held.
func (m *members) needsTransport(peer *poolPeer, lanes int) bool {
	need, have := m.connections(peer, lanes)
	return need > have+peer.dialing && m.now() >= peer.spreadAt
}

// spread makes the next change that brings a server's lanes to as many transports as they need: it
// opens a transport, or begins to move a lane. m.mu is held.
func (m *members) spread(peer *poolPeer) {
	info := m.slots.peer(peer.index)
	if peer.dialing > 0 || peer.moving != nil || m.now() < peer.spreadAt || m.mu.closed || peer.shared || !info.Member || info.Draining || info.Suspect {
		return
	}
	need, have := m.connections(peer, info.Held)
	if need > have && have > 0 {
		peer.dialing++
		m.tasks.Go(func() { m.connectMore(peer) })
		return
	}
	if few, _ := m.connections(peer, info.Held+thinSlack); few <= have/2 {
		m.thin(peer, have-few)
	}
	from, to := peer.fullest(), peer.emptiest(nil)
	if to == nil || from == to || from.leased == 0 {
		return
	}
	if !from.thinning {
		difference := from.leased - to.leased
		peer.spreading = difference > maxDifference || peer.spreading && difference > 1
		if !peer.spreading {
			return
		}
	}
	peer.moving = to.lease(core.NoSlot)
	m.checkLivenessSoon()
}

// thin makes the newest n transports of a server leave after their lanes have moved. m.mu is held.
func (m *members) thin(peer *poolPeer, n int) {
	for i := len(peer.transports) - 1; i >= 0 && n > 0; i-- {
		if t := peer.transports[i]; !t.leaving {
			t.leaving, t.thinning = true, true
			m.noteIdle(t)
			n--
		}
	}
}

// connectMore makes another transport, for lanes of others.
func (m *members) connectMore(peer *poolPeer) {
	t, err := m.dial(m.ctx, peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened(peer, t, err)
	m.spread(peer)
}

// moved handles the answer to the LEASE of a lane that is to replace another one. m.mu is held.
func (m *members) moved(lane *clientLane, granted bool, slot int32) {
	t := lane.transport
	peer := t.peer
	peer.moving = nil
	switch from := peer.fullest(); {
	case !granted:
		t.leased--
		peer.spreadAt = m.now() + int64(spreadPause)
	case t.leaving, from == nil, from == t:
		t.unlease(lane)
	default:
		if peer.moving = m.slots.move(lane, slot, from); peer.moving == nil {
			t.unlease(lane)
		}
	}
	m.noteIdle(t)
	m.stepLocked()
}

// moveNext moves the next lane after one that was replaced has been given back. m.mu is held.
func (m *members) moveNext(lane *clientLane) {
	if peer := lane.transport.peer; peer.moving == lane {
		peer.moving = nil
		m.spread(peer)
	}
}
