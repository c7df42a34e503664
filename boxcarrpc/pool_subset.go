package boxcarrpc

import (
	"hash/fnv"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/subset"
)

// A poolSubset is which of a source's servers a pool uses. The pool's lock guards
// it.
type poolSubset struct {
	core     core.Subset
	snapshot discovery.Snapshot
	places   map[int]int // of numbers among the servers; nil where they are equal
	servers  []discovery.Server
}

func newPoolSubset(o PoolOptions, seed uint64) *poolSubset {
	algorithm := o.Subset
	if algorithm == nil {
		var err error
		if algorithm, err = subset.ByName("rocksteadier", nil); err != nil {
			panic(err) // there is one
		}
	}
	key := seed
	if o.Name != defaultName() {
		h := fnv.New64a()
		_, _ = h.Write([]byte(o.Name)) // a hash takes anything
		key = h.Sum64()
	}
	return &poolSubset{core: core.NewSubset(algorithm, o.SubsetSize, key)}
}

// follow takes a snapshot of the source. It rejects one with so many holes that the
// choice would take long: the pool's lock is held.
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

// place finds a server by its number.
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

// choose returns the servers to use. Both slices are valid until the next choose.
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
