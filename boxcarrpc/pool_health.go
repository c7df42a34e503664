package boxcarrpc

import (
	"context"
	"errors"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

// checkHealth sends the health checks that are due. p.mu is held.
func (p *Pool) checkHealth() {
	for {
		now := p.now()
		entry, ok := p.mu.ladder.Check(now, &p.mu.rng)
		if !ok {
			return
		}
		lane := p.assign(now, entry)
		p.checkLivenessSoon()
		p.tasks.Go(func() { p.check(lane) })
	}
}

// check sends a health check on a lane.
func (p *Pool) check(lane *clientLane) {
	peer := lane.transport.peer
	ctx, cancel := context.WithTimeout(p.ctx, p.options.SilenceTimeout)
	defer cancel()
	c := call{method: p.options.HealthMethod}
	_, _, err := p.exchange(ctx, lane, &c, nil)
	if err != nil && p.ctx.Err() == nil {
		p.options.Logger.Info("health check failed", "server", peer.address, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.Checked(p.now(), peer.index, err == nil, &p.mu.rng)
	p.step()
}

// recordTimeout records that a server did not answer before the deadline of a call. Its slot is
// busy until it answers.
func (p *Pool) recordTimeout(t *transport, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.RecordOutcome(p.now(), t.peer.index, core.Failure, &p.mu.rng)
	p.arm()
}

const (
	// A connection without a slot is kept this long for the next LEASE.
	idleTransport = 10 * time.Second
	// Interval of the liveness check while an answer is outstanding: half of the shortest
	// silence that makes a transport suspect. For a lone caller 25, 50 and 100 ms cost the
	// same.
	silenceTick = 25 * time.Millisecond
)

// errUnused is the reason for closing an idle connection.
var errUnused = errors.New("connection without slots")

// tickPause returns the interval of the liveness check while an answer is outstanding.
func (p *Pool) tickPause() time.Duration { return min(p.options.SilenceTimeout/10, silenceTick) }

// checkLivenessSoon makes the liveness check run at its full rate. p.mu is held.
func (p *Pool) checkLivenessSoon() {
	if p.livenessCheckSlow.Load() && !p.mu.closed {
		p.livenessCheckSlow.Store(false)
		p.mu.tick.Reset(p.tickPause())
	}
}

// noteStreamSend records that a frame was sent on a stream. If the liveness check runs at
// its slow rate, either its next run sees the send, or noteStreamSend restores the full
// rate.
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

// checkLiveness is the timer function of the liveness check. It pings silent transports,
// fails those that do not answer, and closes those that are no longer needed.
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
		pause = max(pause, idleTransport/2)
	}
	p.mu.tick.Reset(pause)
	p.step()
	p.mu.Unlock()
	for _, t := range dead {
		t.fail(errSilent)
	}
}

// inspect checks one transport and reports whether it is dead.
func (p *Pool) inspect(t *transport, now int64) (dead bool) {
	if p.isUnneeded(t, now) {
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

// livenessOf returns what the core concludes from a transport's traffic. p.mu is held.
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

// takePong handles a PONG: its transport is no longer suspect.
func (p *Pool) takePong(t *transport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.suspect && p.livenessOf(t, p.now()) == core.Recovered {
		p.setSuspect(t, false)
	}
}

// takeNotice handles GOAWAY, DRAIN and UNDRAIN.
func (p *Pool) takeNotice(t *transport, what wire.Type, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.leaving || t.lost {
		return
	}
	p.options.Logger.Debug("notice from server", "server", t.peer.address, "frame", what, "reason", reason)
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

// goingAway gives back the free slots of a transport at once and the busy ones when they
// are released, and quarantines its server. p.mu is held.
func (p *Pool) goingAway(t *transport) {
	p.retire(t)
	p.mu.ladder.Quarantine(p.now(), t.peer.index, &p.mu.rng)
}

// setDraining records whether the server of a transport grants slots. The server is
// draining while any of its transports has received DRAIN. p.mu is held.
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

// retire removes the slots of a transport from the ladder and closes it after the last one
// is released. p.mu is held.
func (p *Pool) retire(t *transport) {
	t.leaving = true
	p.retireLanes(t)
	p.noteIdle(t)
}

// retireLanes gives back the free slots of a transport at once and the busy ones when they
// are released. p.mu is held.
func (p *Pool) retireLanes(t *transport) {
	for _, lane := range p.lanesOf(t) {
		if p.mu.ladder.Retire(lane.entry) {
			p.releaseSlot(lane)
		}
	}
}

// isUnneeded reports whether a transport has been idle for a while and may be closed. One
// transport to a draining server stays open, to receive UNDRAIN. p.mu is held.
func (p *Pool) isUnneeded(t *transport, now int64) bool {
	if t.leased > 0 || t.streams > 0 || t.leaving || t.draining && t == t.peer.transports[0] {
		return false
	}
	return now-t.idleSince >= int64(idleTransport)
}
