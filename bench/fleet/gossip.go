package main

import "docstore/bench/fleet/policy"

// Gossip is not sent here: 12 million messages a second would be. A frontend looks
// up what it would have heard: of the servers of its table what each said at its
// last tick, and of a few others, drawn at random, since only a hot frontend can
// use any and takes on one at a time.
const (
	gossipParts  = 8 // a frontend hears of an eighth of its table at a time
	gossipOthers = 4 // and of so many other servers
)

// gossiped is a policy that hears gossip.
type gossiped interface {
	policy.Policy
	Servers(dst []int32) []int32
}

func (s *simulation) gossipEvery() int64 {
	if every := s.c.options.Knotty.Interval; every > 0 {
		return every
	}
	return 1e9
}

// gossip has a frontend hear of servers.
func (s *simulation) gossip(f int32) {
	front := &s.frontends[f]
	p, ok := front.policy.(gossiped)
	if !ok {
		return
	}
	s.schedule.push(event{s.now + s.gossipEvery()/gossipParts, packed(gossipHeard, 0, f)})
	servers := p.Servers(s.heard[:0])
	s.heard = servers
	for i := int(front.turn); i < len(servers); i += gossipParts {
		s.hear(p, servers[i])
	}
	front.turn = (front.turn + 1) % gossipParts
	for range gossipOthers {
		s.hear(p, int32(s.gen.IntN(s.existing)))
	}
	s.actions(f)
}

// hear tells what a backend said at its last tick.
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
