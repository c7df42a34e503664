package boxcarrpc

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/subset"
)

// A source that failed is watched again after this pause.
const sourcePause = time.Second

// watch follows the source until the pool is closed.
func (p *Pool) watch(d discovery.Source) {
	for p.ctx.Err() == nil {
		err := d.Watch(p.ctx, p.update)
		if p.ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.mu.sourceFailure = err
		p.mu.Unlock()
		p.options.Logger.Warn("discovery source failed", "error", err, "retry_in", sourcePause)
		select {
		case <-time.After(sourcePause):
		case <-p.ctx.Done():
		}
	}
}

// update replaces the pool's servers by those of a snapshot, or by a subset of them.
func (p *Pool) update(s discovery.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	p.mu.sourceFailure = nil
	if subset := p.mu.subset; subset != nil {
		if err := subset.follow(s); err != nil {
			p.mu.sourceFailure = err
			p.options.Logger.Error("snapshot rejected, keeping the previous servers", "error", err)
			return
		}
		p.setServers(subset.choose())
	} else {
		p.setServers(s.Servers, nil)
	}
	p.mu.ladder.RequestNow(p.now())
	p.step()
}

// updateBorrowing borrows servers if all of the subset are dead, and gives them back when
// they recover. p.mu is held.
func (p *Pool) updateBorrowing() {
	if subset := p.mu.subset; subset != nil && subset.core.UpdateBorrowing(&p.mu.ladder.Ladder) {
		p.setServers(subset.choose())
		p.options.Logger.Info("subset resized", "servers", p.mu.ladder.Members(), "borrowed", subset.core.Borrowed())
		p.mu.ladder.RequestNow(p.now())
	}
}

// setServers replaces the servers of the pool. The borrowed ones stand in for dead ones.
// p.mu is held.
func (p *Pool) setServers(own, borrowed []discovery.Server) {
	now := p.now()
	known := make(map[string]*poolPeer, len(p.mu.peers))
	for _, peer := range p.mu.peers {
		if peer != nil {
			known[peer.address] = peer
		}
	}
	least := min(leastWeight(own), leastWeight(borrowed))
	present := make(map[string]bool, len(own)+len(borrowed))
	join := func(servers []discovery.Server, join func(now int64, peer int32, rng *rand.PCG)) {
		for _, server := range servers {
			if present[server.Address] {
				continue
			}
			present[server.Address] = true
			peer := known[server.Address]
			if peer == nil {
				peer = p.addPeer(server.Address)
			}
			peer.server = server
			p.mu.ladder.SetWeight(peer.index, weightOf(server)/least)
			join(now, peer.index, &p.mu.rng)
		}
	}
	join(own, p.mu.ladder.Join)
	join(borrowed, p.mu.ladder.Borrow)
	for address, peer := range known {
		if !present[address] && p.mu.ladder.Peer(peer.index).Member {
			p.leave(now, peer)
		}
	}
	p.forgetLeft(now)
}

// leastWeight returns the smallest weight.
func leastWeight(servers []discovery.Server) float64 {
	least := math.Inf(1)
	for _, s := range servers {
		least = min(least, weightOf(s))
	}
	return least
}

func weightOf(s discovery.Server) float64 {
	if s.Weight > 0 {
		return s.Weight
	}
	return 1
}

// leave removes a server from the set. p.mu is held.
func (p *Pool) leave(now int64, peer *poolPeer) {
	p.mu.ladder.Leave(peer.index)
	after := int64(p.options.LeaveAfter)
	peer.leaveAt = now + after + rand.New(&p.mu.rng).Int64N(after/10+1)
	if !peer.left {
		peer.left = true
		p.mu.left = append(p.mu.left, peer)
	}
}

// addPeer adds a server.
func (p *Pool) addPeer(address string) *poolPeer {
	peer := &poolPeer{index: int32(len(p.mu.peers)), address: address}
	if n := len(p.mu.vacant); n > 0 {
		peer.index = p.mu.vacant[n-1]
		p.mu.vacant = p.mu.vacant[:n-1]
		p.mu.peers[peer.index] = peer
		return peer
	}
	if len(p.mu.peers) == cap(p.mu.peers) {
		p.mu.peers = slices.Grow(p.mu.peers, max(16, len(p.mu.peers)))
		p.mu.ladder.Grow(make([]core.Peer, cap(p.mu.peers)))
	}
	p.mu.peers = append(p.mu.peers, peer)
	return peer
}

// trim gives back a slot of a left or borrowed server for each slot of another server that
// has answered its first request. It reports whether a slot has left the ladder. p.mu is
// held.
func (p *Pool) trim() (gone bool) {
	for {
		entry, ok := p.mu.ladder.Trim()
		if !ok {
			return gone
		}
		p.releaseSlot(p.mu.entries[entry])
		gone = true
	}
}

// forgetLeft retires the slots of servers whose LeaveAfter has passed, and removes servers
// without transports.
func (p *Pool) forgetLeft(now int64) {
	p.mu.left = slices.DeleteFunc(p.mu.left, func(peer *poolPeer) bool {
		switch {
		case p.mu.ladder.Peer(peer.index).Member:
			peer.left = false // it has returned
			return true
		case len(peer.transports) == 0 && !peer.dialing:
			p.mu.ladder.Forget(peer.index)
			p.mu.peers[peer.index] = nil
			p.mu.vacant = append(p.mu.vacant, peer.index)
			return true
		case now >= peer.leaveAt:
			for _, t := range peer.transports {
				if !t.leaving {
					p.retire(t)
				}
			}
		}
		return false
	})
}

// A poolSubset chooses the servers that a pool uses. It is guarded by the pool's lock.
type poolSubset struct {
	core     core.Subset
	snapshot discovery.Snapshot
	places   map[int]int // index in snapshot.Servers by number; nil if both are equal
	servers  []discovery.Server
}

func newPoolSubset(o PoolOptions, seed uint64) *poolSubset {
	algorithm := o.Subset
	if algorithm == nil {
		var err error
		if algorithm, err = subset.ByName("rocksteadier", nil); err != nil {
			panic(err) // the name is registered
		}
	}
	key := seed
	if o.Name != defaultName() {
		h := fnv.New64a()
		_, _ = h.Write([]byte(o.Name)) // never fails
		key = h.Sum64()
	}
	return &poolSubset{core: core.NewSubset(algorithm, o.SubsetSize, key)}
}

// follow sets the snapshot. It rejects one with so many unused numbers that choosing would
// take long, since the pool's lock is held.
func (s *poolSubset) follow(snapshot discovery.Snapshot) error {
	if limit := discovery.Limit(len(snapshot.Servers)); snapshot.Numbers > limit {
		highest := discovery.Server{Number: snapshot.Numbers - 1, Address: "no server"}
		for _, server := range snapshot.Servers {
			if server.Number >= highest.Number {
				highest = server
			}
		}
		return &discovery.NumberError{Source: "number given for " + highest.Address, Number: highest.Number, Limit: limit}
	}
	s.snapshot, s.places = snapshot, nil
	for place, server := range snapshot.Servers {
		if server.Number != place && s.places == nil {
			s.places = make(map[int]int, len(snapshot.Servers))
			for before := range place {
				s.places[before] = before
			}
		}
		if s.places != nil {
			s.places[server.Number] = place
		}
	}
	return nil
}

// place returns the index of a server by its number.
func (s *poolSubset) place(number int) (place int, ok bool) {
	if s.places == nil {
		return number, number < len(s.snapshot.Servers)
	}
	place, ok = s.places[number]
	return place, ok
}

func (s *poolSubset) exists(number int) bool {
	_, ok := s.place(number)
	return ok
}

// choose returns the servers to use. Both slices are valid until the next call.
func (s *poolSubset) choose() (own, borrowed []discovery.Server) {
	numbers, more := s.core.Choose(core.View{
		Numbers:   s.snapshot.Numbers,
		Self:      s.snapshot.Self,
		Frontends: s.snapshot.Frontends,
		Exists:    s.exists,
	})
	s.servers = s.servers[:0]
	for _, list := range [][]int{numbers, more} {
		for _, number := range list {
			place, _ := s.place(number)
			s.servers = append(s.servers, s.snapshot.Servers[place])
		}
	}
	return s.servers[:len(numbers)], s.servers[len(numbers):]
}
