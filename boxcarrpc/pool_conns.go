package boxcarrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
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

// step gives back the slots that the pool no longer needs, sends the lease requests and
// health checks that are due, and sets the timer for the next ones.
func (m *members) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepLocked()
}

func (m *members) stepLocked() {
	if m.mu.closed {
		return
	}
	for lane := m.slots.returned(); lane != nil; lane = m.slots.returned() {
		lane.transport.unlease(lane)
		m.noteIdle(lane.transport)
		m.moveNext(lane)
	}
	for changed := true; changed; changed = m.updateBorrowing() {
		for index, below, ok := m.slots.nextRequest(); ok; index, below, ok = m.slots.nextRequest() {
			m.requestLease(m.mu.peers[index], below)
		}
	}
	m.slots.endWaits()
	for lane := m.slots.nextCheck(); lane != nil; lane = m.slots.nextCheck() {
		m.tasks.Go(func() { m.check(lane) })
	}
	m.mu.wake.Reset(m.slots.wakeIn())
}

// requestLease requests a slot: on the transport of the server with the fewest lanes after the
// exchange, if one has room and no other is needed, else on a new transport. m.mu is held.
func (m *members) requestLease(peer *poolPeer, below int32) {
	lanes := m.slots.peer(peer.index).Held
	if below == core.NoSlot {
		lanes++ // it replaces none of the server's
	}
	if t := peer.emptiest(m.slots.replaced(peer.index)); t != nil && !m.needsTransport(peer, lanes) {
		m.lease(t, below)
		return
	}
	peer.dialing++
	m.tasks.Go(func() { m.connect(peer) })
}

// lease requests a slot on a transport. m.mu is held.
func (m *members) lease(t *transport, below int32) {
	t.leasing = true
	t.lease(below)
	m.checkLivenessSoon()
}

// leaseDone ends a lease request that gained nothing. m.mu is held.
func (m *members) leaseDone(peer *poolPeer, result core.LeaseResult) {
	m.slots.update(func(now int64, l *core.Client, rng *rand.PCG) { l.Done(now, peer.index, result, rng) })
}

// connect makes a new transport and requests a slot on it, or on another one of the server that
// has room.
func (m *members) connect(peer *poolPeer) {
	t, err := m.dial(m.ctx, peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened(peer, t, err); m.mu.closed {
		return
	}
	if err != nil {
		t = peer.emptiest(nil)
	}
	if t == nil {
		peer.failure = err
		if errors.Is(err, ErrPlainText) {
			m.slots.giveUp(fmt.Errorf("%s: %w", peer.address, err))
		}
		m.quarantine(peer)
		m.leaseDone(peer, core.Failed)
		m.stepLocked()
		return
	}
	var below int32
	var ok bool
	m.slots.update(func(_ int64, l *core.Client, _ *rand.PCG) { below, ok = l.Bid(peer.index) })
	if ok && t.maxLanes() > 0 {
		m.lease(t, below)
	} else {
		m.leaseDone(peer, core.Declined)
		m.stepLocked()
	}
}

// opened adds a new transport, or records why there is none. m.mu is held.
func (m *members) opened(peer *poolPeer, t *transport, err error) {
	peer.dialing--
	switch {
	case m.mu.closed:
		if err == nil {
			conn.Close(t.conn)
		}
		return
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			m.options.Logger.Debug("cannot connect", "server", peer.address, "error", err)
		}
		peer.spreadAt = m.now() + int64(spreadPause)
		return
	}
	peer.failure, peer.spreading = nil, true
	t.mu.responseBytes = peer.responseBytes()
	t.idleSince = m.now()
	t.liveness = core.NewLiveness(t.idleSince, int64(m.options.SilenceTimeout), int64(keepAlive))
	m.warnIfShared(t)
	m.noteZone(peer, t.server.Zone)
	peer.transports = append(peer.transports, t)
	m.mu.open = append(m.mu.open, t)
	close(m.mu.connected)
	m.mu.connected = make(chan struct{})
	m.tasks.Go(t.run)
}

// warnIfShared warns once if several servers have the address of a transport, as behind a
// load balancer. Their slots have the same numbers, and the ladder refuses a number that it
// holds. m.mu is held.
func (m *members) warnIfShared(t *transport) {
	peer := t.peer
	for _, other := range peer.transports {
		if other.hello.Name != t.hello.Name && !peer.shared {
			peer.shared = true
			m.options.Logger.Warn("an address must be that of one server, because slots are numbered by server; give the pool the addresses of the servers",
				"address", peer.address, "servers", []string{other.server.Name, t.server.Name})
		}
	}
}

// leaseAnswered handles the answer to a LEASE.
func (m *members) leaseAnswered(lane *clientLane, granted bool, slot int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := lane.transport
	if lane == t.peer.moving {
		m.moved(lane, granted, slot)
		return
	}
	if !t.leasing {
		return // the transport has ended
	}
	t.leasing = false
	switch {
	case !granted:
		t.leased--
		m.leaseDone(t.peer, core.Declined)
	case t.leaving:
		t.unlease(lane)
		m.leaseDone(t.peer, core.Declined)
	case !m.slots.grant(lane, slot):
		t.unlease(lane)
	}
	m.noteIdle(t)
	m.stepLocked()
}

// noteIdle records when a transport has no lane and no stream left, and closes it if it is
// leaving. m.mu is held.
func (m *members) noteIdle(t *transport) {
	if t.leased > 0 || t.streams > 0 {
		return
	}
	t.idleSince = m.now()
	if t.leaving {
		m.closeSoon(t, errGoingAway)
	}
}

// closeSoon closes a transport in a new goroutine, because the caller holds m.mu.
func (m *members) closeSoon(t *transport, cause error) {
	if !m.mu.closed {
		m.tasks.Go(func() { t.fail(cause) })
	}
}

// removeTransport removes the slots of a transport that has ended from the ladder. If the
// transport failed, its server is quarantined.
func (m *members) removeTransport(t *transport, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.lost {
		return
	}
	t.lost = true
	peer := t.peer
	isThis := func(other *transport) bool { return other == t }
	peer.transports = slices.DeleteFunc(peer.transports, isThis)
	m.mu.open = slices.DeleteFunc(m.mu.open, isThis)
	m.slots.lose(t)
	m.setSuspect(t, false)
	m.setDraining(t, false)
	if peer.moving != nil && peer.moving.transport == t {
		peer.moving = nil
	}
	if (!t.leaving || t.thinning && t.leased > 0) && !m.mu.closed {
		m.mu.broken++
		peer.failure = cause
		m.options.Logger.Info("connection broke", "server", peer.address, "error", cause)
		m.quarantine(peer)
	}
	if t.leasing {
		t.leasing = false
		m.leaseDone(peer, core.Failed)
	}
	m.slots.update(func(now int64, l *core.Client, _ *rand.PCG) {
		if !l.Full() {
			l.RequestNow(now)
		}
	})
	m.stepLocked()
}

// quarantine stops lease requests to a server for a while. m.mu is held.
func (m *members) quarantine(peer *poolPeer) {
	m.slots.update(func(now int64, l *core.Client, rng *rand.PCG) { l.Quarantine(now, peer.index, rng) })
}

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
	for _, t := range m.mu.open {
		if t == t.peer.transports[0] {
			m.spread(t.peer)
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
	if t.leaving && !t.thinning || t.lost {
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
	t.leaving, t.thinning = true, false
	m.slots.retire(t)
	m.noteIdle(t)
}

// isUnneeded reports whether a transport has been idle for a while and may be closed. One
// transport to a draining server stays open, to receive UNDRAIN. m.mu is held.
func (m *members) isUnneeded(t *transport, now int64) bool {
	if t.leased > 0 || t.streams > 0 || t.leaving || t == t.peer.receivesUndrain() {
		return false
	}
	return now-t.idleSince >= int64(idleTransport)
}

// streamTransport reserves a stream on the best transport. If there is none, connected is
// closed with the next connection.
func (m *members) streamTransport() (t *transport, connected <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.closed:
		return nil, nil, ErrPoolClosed
	case m.mu.streams >= m.options.MaxStreams:
		return nil, nil, ErrPoolBusy
	}
	var best *transport
	var full, takesNone bool
	for _, t := range m.mu.open {
		switch {
		case t.leaving || t.lost:
		case t.hello.MaxStreams == 0:
			takesNone = true
		case t.streams >= int(t.hello.MaxStreams):
			full = true
		case best == nil || m.streamsBefore(t, best):
			best = t
		}
	}
	switch {
	case best != nil:
		best.streams++
		m.mu.streams++
		best.peer.streamed = m.now()
	case full:
		return nil, nil, ErrPoolBusy
	case takesNone:
		return nil, nil, &Error{Code: CodeUnimplemented, Message: "no server of the pool takes streams"}
	}
	return best, m.mu.connected, nil
}

// streamsBefore reports whether a is better than b for a new stream.
func (m *members) streamsBefore(a, b *transport) bool {
	if x, y := m.streamRank(a), m.streamRank(b); x != y {
		return x < y
	}
	return cmp.Or(cmp.Compare(a.peer.streams(), b.peer.streams()), cmp.Compare(a.peer.streamed, b.peer.streamed), cmp.Compare(a.streams, b.streams)) < 0
}

// streamRank ranks the server of a transport; 0 is best, and odd ranks are of other zones.
func (m *members) streamRank(t *transport) (rank int) {
	info := m.slots.peer(t.peer.index)
	switch {
	case !info.Member, info.Isolated, info.Draining:
		rank = 6
	case info.Suspect, info.Ejected:
		rank = 4
	case info.Paused:
		rank = 2
	}
	if info.Far {
		rank++
	}
	return rank
}

// streamsEnded removes n streams of a transport.
func (m *members) streamsEnded(t *transport, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.streams -= n
	m.mu.streams -= n
	m.noteIdle(t)
}
