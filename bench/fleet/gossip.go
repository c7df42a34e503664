package main

import "docstore/bench/fleet/policy"

// Gossip is not simulated as messages, which would be 12 million per second. A frontend
// reads the last gossip of the servers in its table, and of a few random others: only a
// hot frontend uses those, one at a time.
const (
	gossipParts  = 8 // a frontend reads an eighth of its table at a time
	gossipOthers = 4 // and this many other servers
)

// gossiped is a policy that uses gossip.
type gossiped interface {
	policy.Policy
	Servers(dst []int32) []int32
}

// gossip passes the gossip of some servers to a frontend.
func (s *simulation) gossip(f int32) {
	front := &s.frontends[f]
	p, ok := front.policy.(gossiped)
	if !ok {
		return
	}
	s.schedule.push(event{s.now + policy.GossipInterval/gossipParts, packed(gossipHeard, 0, f)})
	servers := p.Servers(s.heard[:0])
	s.heard = servers
	for i := int(front.part); i < len(servers); i += gossipParts {
		s.hear(p, servers[i])
	}
	front.part = (front.part + 1) % gossipParts
	for range gossipOthers {
		s.hear(p, int32(s.gen.IntN(s.existing)))
	}
	s.actions(f)
}

// hear passes a backend's last gossip to a policy.
func (s *simulation) hear(p policy.Policy, server int32) {
	b := &s.backends[server]
	if b.state != up {
		return
	}
	s.settle(server)
	at := s.tickTime(server, b.tick)
	p.Learn(s.now, policy.News{Kind: policy.Gossip, Server: server, Entry: -1, Report: policy.Report{
		Tokens: int32(s.rate.Tokens(at, b.heardFull)), Sessions: b.heard,
	}}, &s.rng)
}
