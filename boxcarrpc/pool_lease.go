package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
)

// wakeUp is the timer function of the lease seeker.
func (p *Pool) wakeUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step()
}

// step does everything that the core wants done now. p.mu is held.
func (p *Pool) step() {
	if p.mu.closed {
		return
	}
	p.trim()
	p.updateBorrowing()
	for {
		index, below, ok := p.mu.ladder.NextRequest(p.now(), &p.mu.rng)
		if !ok {
			break
		}
		p.checkLivenessSoon()
		p.requestLease(p.mu.peers[index], below)
	}
	p.checkHealth()
	p.arm()
}

// arm sets the timer of the lease seeker. p.mu is held.
func (p *Pool) arm() {
	if p.mu.closed {
		return
	}
	wake := p.mu.ladder.Wake()
	if wake < math.MaxInt64 {
		p.mu.wake.Reset(time.Duration(max(wake-p.now(), 0)))
	} else {
		p.mu.wake.Stop()
	}
}

// requestLease requests a slot: on the transport of the server with the fewest lanes, if
// one has room, else on a new transport. p.mu is held.
func (p *Pool) requestLease(peer *poolPeer, below int32) {
	var best *transport
	for _, t := range peer.transports {
		if !t.leaving && t.leased < t.maxLanes() && (best == nil || t.leased < best.leased) {
			best = t
		}
	}
	if best != nil {
		best.leasing = true
		best.lease(below)
		return
	}
	peer.dialing = true
	p.tasks.Go(func() { p.connect(peer) })
}

// connect makes a new transport and requests a slot on it.
func (p *Pool) connect(peer *poolPeer) {
	t, err := p.dial(p.ctx, peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	peer.dialing, peer.failure = false, err
	switch {
	case p.mu.closed:
		if err == nil {
			conn.Close(t.conn)
		}
		return
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			p.options.Logger.Debug("cannot connect", "server", peer.address, "error", err)
		}
		if errors.Is(err, ErrPlainText) && p.mu.unusable == nil {
			p.mu.unusable = fmt.Errorf("%s: %w", peer.address, err)
			close(p.unusable)
		}
		p.mu.ladder.Quarantine(now, peer.index, &p.mu.rng)
		p.mu.ladder.Done(now, peer.index, core.Failed, &p.mu.rng)
		p.step()
		return
	}
	t.idleSince = now
	t.liveness = core.NewLiveness(now, int64(p.options.SilenceTimeout), int64(keepAlive))
	peer.transports = append(peer.transports, t)
	p.mu.open = append(p.mu.open, t)
	close(p.mu.connected)
	p.mu.connected = make(chan struct{})
	if below, ok := p.mu.ladder.Bid(peer.index); ok && t.maxLanes() > 0 {
		t.leasing = true
		t.lease(below)
		p.checkLivenessSoon()
	} else {
		p.mu.ladder.Done(now, peer.index, core.Declined, &p.mu.rng)
		p.step()
	}
	p.tasks.Go(t.run)
}

// leaseAnswered handles the answer to a LEASE.
func (p *Pool) leaseAnswered(lane *clientLane, granted bool, slot int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := lane.transport
	if !t.leasing {
		return // the transport has ended
	}
	t.leasing = false
	now := p.now()
	switch {
	case granted && !t.leaving:
		p.addSlot(now, lane, slot)
	case granted:
		t.unlease(lane)
		p.mu.ladder.Done(now, t.peer.index, core.Declined, &p.mu.rng)
	default:
		t.leased--
		p.mu.ladder.Done(now, t.peer.index, core.Declined, &p.mu.rng)
	}
	p.noteIdle(t)
	p.serveWaiters() // before step, which retires a slot that only a retry wants
	p.step()
}

// addSlot puts a granted slot into the ladder, or gives it back if the ladder no longer needs
// it. p.mu is held.
func (p *Pool) addSlot(now int64, lane *clientLane, slot int32) {
	entry, victim, gone, ok := p.mu.ladder.Grant(now, lane.transport.peer.index, slot, &p.mu.rng)
	if !ok {
		lane.transport.unlease(lane)
		return
	}
	lane.entry, lane.leasedAt, lane.requests = entry, now, 0
	p.mu.entries[entry] = lane
	p.mu.leases++
	if victim >= 0 {
		p.mu.swaps++
	}
	if gone {
		p.releaseSlot(p.mu.entries[victim])
	}
	select {
	case <-p.mu.ready:
	default:
		close(p.mu.ready)
	}
}

// lanesOf returns the lanes of a transport that are in the ladder.
func (p *Pool) lanesOf(t *transport) []*clientLane {
	var lanes []*clientLane
	for _, lane := range p.mu.entries {
		if lane != nil && lane.transport == t {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// removeTransport removes the slots of a transport that has ended from the ladder. If the
// transport failed, its server is quarantined.
func (p *Pool) removeTransport(t *transport, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.lost {
		return
	}
	t.lost = true
	now, peer := p.now(), t.peer
	isThis := func(other *transport) bool { return other == t }
	peer.transports = slices.DeleteFunc(peer.transports, isThis)
	p.mu.open = slices.DeleteFunc(p.mu.open, isThis)
	for _, lane := range p.lanesOf(t) {
		p.mu.ladder.Lose(lane.entry)
		p.removeEntry(lane)
		p.mu.lost++
	}
	p.setSuspect(t, false)
	p.setDraining(t, false)
	if !t.leaving && !p.mu.closed {
		p.mu.broken++
		peer.failure = cause
		p.options.Logger.Info("connection broke", "server", peer.address, "error", cause)
		p.mu.ladder.Quarantine(now, peer.index, &p.mu.rng)
	}
	if t.leasing {
		t.leasing = false
		p.mu.ladder.Done(now, peer.index, core.Failed, &p.mu.rng)
	}
	if !p.mu.ladder.Full() {
		p.mu.ladder.RequestNow(now)
	}
	p.step()
	p.serveWaiters()
}
