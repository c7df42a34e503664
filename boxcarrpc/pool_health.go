package boxcarrpc

import (
	"errors"
	"math/rand/v2"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

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
func (m *members) tickPause() time.Duration { return min(m.options.SilenceTimeout/10, silenceTick) }

// checkLivenessSoon makes the liveness check run at its full rate. m.mu is held.
func (m *members) checkLivenessSoon() {
	if m.livenessCheckSlow.Load() && !m.mu.closed {
		m.livenessCheckSlow.Store(false)
		m.mu.tick.Reset(m.tickPause())
	}
}

// noteSend is called after a frame was sent, if the liveness check runs at its slow rate:
// either its next run sees the send, or noteSend restores the full rate.
func (m *members) noteSend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checkLivenessSoon()
}

// noteStreamSend records that a frame was sent on a stream.
func (t *transport) noteStreamSend() {
	t.streamSends.Add(1)
	if t.members.livenessCheckSlow.Load() {
		t.members.noteSend()
	}
}

// setSuspect ranks a server last while one of its transports is silent. m.mu is held.
func (m *members) setSuspect(t *transport, suspect bool) {
	if t.suspect == suspect {
		return
	}
	t.suspect = suspect
	for _, other := range t.peer.transports {
		suspect = suspect || other.suspect
	}
	m.slots.update(func(_ int64, l *core.Client, _ *rand.PCG) { l.SetSuspect(t.peer.index, suspect) })
}

// checkLiveness is the timer function of the liveness check. It pings silent transports,
// fails those that do not answer, and closes those that are no longer needed.
func (m *members) checkLiveness() {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return
	}
	now := m.now()
	var dead []*transport
	m.livenessCheckSlow.Store(true)
	for _, t := range m.mu.open {
		if m.inspect(t, now) {
			dead = append(dead, t)
		}
	}
	m.forgetLeft()
	pause := m.tickPause()
	if m.livenessCheckSlow.Load() {
		pause = max(pause, idleTransport/2)
	}
	m.mu.tick.Reset(pause)
	m.stepLocked()
	m.mu.Unlock()
	for _, t := range dead {
		t.fail(errSilent)
	}
}

// inspect checks one transport and reports whether it is dead.
func (m *members) inspect(t *transport, now int64) (dead bool) {
	if m.isUnneeded(t, now) {
		t.leaving = true
		m.closeSoon(t, errUnused)
		return false
	}
	verdict := m.livenessOf(t, now)
	if t.liveness.Waiting() {
		m.livenessCheckSlow.Store(false)
	}
	switch verdict {
	case core.Ping, core.Suspect:
		t.out.Append(wire.AppendPing(nil, wire.TypePing, uint64(now)))
		t.out.FlushSoon()
		if verdict == core.Suspect {
			m.setSuspect(t, true)
		}
	case core.Recovered:
		m.setSuspect(t, false)
	case core.Dead:
		return true
	}
	return false
}

// livenessOf returns what the core concludes from a transport's traffic. m.mu is held.
func (m *members) livenessOf(t *transport, now int64) core.Verdict {
	traffic := core.Traffic{
		Received: t.turn.in.Received(),
		Written:  t.out.Written(),
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
func (m *members) takePong(t *transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.suspect && m.livenessOf(t, m.now()) == core.Recovered {
		m.setSuspect(t, false)
	}
}

// takeNotice handles GOAWAY, DRAIN and UNDRAIN.
func (m *members) takeNotice(t *transport, what wire.Type, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.leaving || t.lost {
		return
	}
	m.options.Logger.Debug("notice from server", "server", t.peer.address, "frame", what, "reason", reason)
	switch what {
	case wire.TypeGoAway:
		m.retire(t)
		m.quarantine(t.peer)
	case wire.TypeDrain:
		m.setDraining(t, true)
		m.slots.retire(t)
	default:
		m.setDraining(t, false)
	}
	m.slots.update(func(now int64, l *core.Client, _ *rand.PCG) { l.RequestNow(now) })
	m.stepLocked()
}

// setDraining records whether the server of a transport grants slots. The server is
// draining while any of its transports has received DRAIN. m.mu is held.
func (m *members) setDraining(t *transport, draining bool) {
	if t.draining == draining {
		return
	}
	t.draining, t.idleSince = draining, m.now()
	for _, other := range t.peer.transports {
		draining = draining || other.draining
	}
	m.slots.update(func(now int64, l *core.Client, rng *rand.PCG) {
		if l.Peer(t.peer.index).Draining != draining {
			l.SetDraining(now, t.peer.index, draining, rng)
		}
	})
}

// retire removes the slots of a transport from the ladder and closes it after the last one
// is released. m.mu is held, and the caller calls stepLocked.
func (m *members) retire(t *transport) {
	t.leaving = true
	m.slots.retire(t)
	m.noteIdle(t)
}

// isUnneeded reports whether a transport has been idle for a while and may be closed. One
// transport to a draining server stays open, to receive UNDRAIN. m.mu is held.
func (m *members) isUnneeded(t *transport, now int64) bool {
	if t.leased > 0 || t.streams > 0 || t.leaving || t.draining && t == t.peer.transports[0] {
		return false
	}
	return now-t.idleSince >= int64(idleTransport)
}
