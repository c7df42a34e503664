package policy

import (
	"math/rand/v2"

	"docstore/boxcarrpc/core"
)

// A silence detects silent servers with core.Liveness, as boxcarrpc's Pool does, with one
// connection to each server. It is off without a timeout.
type silence struct {
	timeout int64
	next    int64 // time of the next check, or never
	peers   []quiet
}

// A quiet is the traffic with a server.
type quiet struct {
	liveness core.Liveness
	received uint64
	pending  int32 // requests in flight
	begun    bool  // there is a connection
	times    core.Times
}

const (
	silenceTick = 25e6 // nanoseconds between two checks, as in Pool
	pingAfter   = 90e9 // nanoseconds after which an idle connection is pinged, as in Pool
)

// sent records a request.
func (s *silence) sent(now int64, peer int32) {
	if s.timeout == 0 {
		return
	}
	for int(peer) >= len(s.peers) {
		s.peers = append(s.peers, quiet{})
	}
	q := &s.peers[peer]
	if !q.begun {
		*q = quiet{begun: true, liveness: core.NewLiveness(now, s.timeout, pingAfter)}
	}
	q.pending++
	s.next = min(s.next, now+silenceTick)
}

// heard records an answer: of a request, which took so long, or to a ping.
func (s *silence) heard(peer int32, request bool, took int64) {
	if s.timeout == 0 || int(peer) >= len(s.peers) || !s.peers[peer].begun {
		return
	}
	q := &s.peers[peer]
	q.received++
	if request {
		q.pending--
		q.times.Add(took)
	}
}

// reset forgets the connection to a server.
func (s *silence) reset(peer int32) {
	if int(peer) < len(s.peers) {
		s.peers[peer].begun = false
	}
}

// checkSilence steps the connections with requests in flight.
func (p *Slots) checkSilence(now int64, rng *rand.PCG) {
	s := &p.silence
	s.next = never
	for i := range s.peers {
		q, peer := &s.peers[i], int32(i)
		if !q.begun || q.pending == 0 && !q.liveness.Waiting() {
			continue
		}
		s.next = now + silenceTick
		switch verdict := q.liveness.Step(now, core.Traffic{Received: q.received, Pending: q.pending > 0, P99: q.times.P99(now)}); verdict {
		case core.Ping, core.Suspect:
			p.SetSuspect(peer, verdict == core.Suspect)
			p.returns = append(p.returns, Action{Kind: Probe, Server: p.servers[peer], Entry: peer})
		case core.Recovered:
			p.SetSuspect(peer, false)
		case core.Dead:
			p.SetSuspect(peer, false)
			p.each(peer, p.giveBack) // the server ends with them when it is back
			p.lost(now, peer, rng)
			p.returns = append(p.returns, Action{Kind: Break, Server: p.servers[peer], Entry: peer})
		}
	}
}
