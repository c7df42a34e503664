package boxcarrpc

import (
	"context"
	"errors"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

// checkHealth sends the checks that are due. p.mu is held.
func (p *Pool) checkHealth() {
	for {
		now := p.now()
		entry, ok := p.mu.ladder.Check(now, &p.mu.rng)
		if !ok {
			return
		}
		lane := p.picked(now, entry)
		p.checkLivenessSoon()
		p.tasks.Go(func() { p.check(lane) })
	}
}

// check asks the server of a lane how it is.
func (p *Pool) check(lane *clientLane) {
	peer := lane.transport.peer
	ctx, cancel := context.WithTimeout(p.ctx, p.options.SilenceTimeout)
	defer cancel()
	c := call{method: p.options.HealthMethod}
	_, _, err := p.exchange(ctx, lane, &c, nil)
	if err != nil && p.ctx.Err() == nil {
		p.options.Logger.Info("server is unwell", "server", peer.address, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.Checked(p.now(), peer.index, err == nil, &p.mu.rng)
	p.step()
}

// overdue takes note of a server that did not answer within the caller's deadline.
// Its slot is busy until it does.
func (p *Pool) overdue(t *transport, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.RecordOutcome(p.now(), t.peer.index, core.Failure, &p.mu.rng)
	p.arm()
}

const (
	// A connection without a slot is kept this long for the rover's next question.
	idleTransport = 10 * time.Second
	// How often the transports are looked at, at most, while anything is owed: half
	// of the shortest silence that makes one suspect. Of 25, 50 and 100 ms none is
	// cheaper than the others for a lone caller.
	silenceTick = 25 * time.Millisecond
)

// errUnused ends a connection that nobody needs.
var errUnused = errors.New("connection without slots")

// tickPause is how often the transports are looked at while anything is owed.
func (p *Pool) tickPause() time.Duration { return min(p.options.SilenceTimeout/10, silenceTick) }

// checkLivenessSoon has the watch over silence run at its full pace. p.mu is held.
func (p *Pool) checkLivenessSoon() {
	if p.livenessCheckSlow.Load() && !p.mu.closed {
		p.livenessCheckSlow.Store(false)
		p.mu.tick.Reset(p.tickPause())
	}
}

// noteStreamSend tells that something was sent on a stream. If the watch rests it either
// sees that, or is seen to rest here.
func (t *transport) noteStreamSend() {
	t.streamSends.Add(1)
	if p := t.pool; p.livenessCheckSlow.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.checkLivenessSoon()
	}
}

func (p *Pool) setSuspect(t *transport, suspect bool) {
	if t.suspect == suspect {
		return
	}
	t.suspect = suspect
	for _, other := range t.peer.transports {
		suspect = suspect || other.suspect
	}
	p.mu.ladder.SetSuspect(t.peer.index, suspect)
}

// checkLiveness looks at every transport, asks quiet ones for a sign of life and
// gives up those that do not answer, and those that are no longer needed.
func (p *Pool) checkLiveness() {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return
	}
	now := p.now()
	var dead []*transport
	p.livenessCheckSlow.Store(true)
	for _, t := range p.mu.open {
		if p.inspect(t, now) {
			dead = append(dead, t)
		}
	}
	p.forgetLeft(now)
	pause := p.tickPause()
	if p.livenessCheckSlow.Load() {
		pause = max(pause, min(p.options.KeepAlive/4, idleTransport/2))
	}
	p.mu.tick.Reset(pause)
	p.step()
	p.mu.Unlock()
	for _, t := range dead {
		t.fail(errSilent)
	}
}

// inspect looks at one transport and reports whether it is dead.
func (p *Pool) inspect(t *transport, now int64) (dead bool) {
	if p.unneeded(t, now) {
		t.leaving = true
		p.closeSoon(t, errUnused)
		return false
	}
	verdict := p.livenessOf(t, now)
	if t.liveness.Waiting() {
		p.livenessCheckSlow.Store(false)
	}
	switch verdict {
	case core.Ping, core.Suspect:
		t.out.Ping(wire.TypePing, uint64(now))
		t.out.FlushSoon()
		p.setSuspect(t, verdict == core.Suspect)
	case core.Recovered:
		p.setSuspect(t, false)
	case core.Dead:
		return true
	}
	return false
}

// listen asks the core what a transport's silence means. p.mu is held.
func (p *Pool) livenessOf(t *transport, now int64) core.Verdict {
	traffic := core.Traffic{
		Received: t.turn.in.Received(),
		Sent:     t.streamSends.Load(),
		Pending:  int(t.outstanding.Load()) > t.streams, // a stream may be silent for long
	}
	if traffic.Pending {
		t.mu.Lock()
		traffic.P99 = t.mu.times.P99(now)
		t.mu.Unlock()
	}
	return t.liveness.Step(now, traffic)
}

// heard takes an answer to a ping: a suspect is not one any more.
func (p *Pool) takePong(t *transport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.suspect && p.livenessOf(t, p.now()) == core.Recovered {
		p.setSuspect(t, false)
	}
}

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
