package main

import (
	"slices"

	"docstore/bench/fleet/policy"
)

// frameBytes is the size of a lease, probe, answer or gossip on the network: a minimal
// Ethernet frame, whose payload of 46 bytes has room for a gossip over UDP.
const frameBytes = 64

// gossipFanout is the number of frontends to which a backend sends its gossip, and to which a frontend
// relays it.
const gossipFanout = 3

// A gossiping is the gossip of knotty's backends. Each backend sends its state to some
// random frontends in every interval, at its own time. A frontend relays a gossip to as
// many of its neighbours, the frontends with the next numbers.
type gossiping struct {
	next   int64 // when the next backend sends, or never
	sent   int64 // how many have sent since the start
	rumors wire[rumor]
}

// A rumor is a gossip on its way to a frontend.
type rumor struct {
	policy.Gossip
	frontend int32
	relays   int32 // how often it is still relayed
}

// gossip sends the state of the next backend.
func (s *simulation) gossip() {
	g := &s.gossiping
	backends := int64(len(s.backends))
	server := int32(g.sent % backends)
	g.sent++
	const every = policy.GossipInterval
	g.next = g.sent/backends*every + g.sent%backends*every/backends
	b := &s.backends[server]
	if b.state != up {
		return
	}
	said := policy.Gossip{At: s.now, Server: server, Tokens: int32(s.rate.Tokens(s.now, b.bucket)), Sessions: b.sessions}
	for range gossipFanout {
		g.rumors.send(s.now+trip, rumor{said, int32(s.gen.IntN(len(s.frontends))), int32(s.c.gossipRelays)})
	}
	s.count(&s.measure.counts.gossip, gossipFanout)
}

// hear handles the arrival of a gossip at a frontend.
func (s *simulation) hear(r rumor) {
	if r.relays > 0 {
		for i := range gossipFanout {
			neighbour := (int(r.frontend) + 1 + i) % len(s.frontends)
			s.gossiping.rumors.send(s.now+trip, rumor{r.Gossip, int32(neighbour), r.relays - 1})
		}
		s.count(&s.measure.counts.gossip, gossipFanout)
	}
	if s.frontends[r.frontend].policy.(*policy.Knotty).Hear(r.Gossip) {
		s.actions(r.frontend)
	}
}

// freshness returns the median age of the rows of all tables in nanoseconds, where a row
// that was never heard of is as old as the run, and the share of rows of the last two
// intervals.
func (s *simulation) freshness() (median int64, fresh float64) {
	if s.c.policy != "knotty" {
		return 0, 0
	}
	var ages []int64
	for f := range s.frontends {
		ages = s.frontends[f].policy.(*policy.Knotty).Said(ages)
	}
	count := 0
	for i, said := range ages {
		ages[i] = s.now - said
		if ages[i] <= 2*policy.GossipInterval {
			count++
		}
	}
	slices.Sort(ages)
	return ages[len(ages)/2], float64(count) / float64(len(ages))
}
