package boxcarrpc

import (
	"errors"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

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
