// Package serverset chooses the servers that a pool uses, from the snapshots of its source: a
// subset by the numbers of both sides, with those of the client's zone first, and borrowed
// ones while all of the subset are dead or full. The rules are in package core; this package
// translates numbers to servers. It knows neither connections nor slots.
package serverset

import (
	"slices"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/subset"
)

// A Subset chooses servers. It is not safe for concurrent use.
type Subset struct {
	core     core.Subset
	snapshot discovery.Snapshot
	zone     string
	zoned    bool        // zone is known, and the zone of a server
	stride   int         // of the numbers of the zone, if zoned
	places   map[int]int // index in snapshot.Servers by number; nil if both are equal
	servers  []discovery.Server
}

// New returns a subset of size servers for a client in a zone, which may be unknown. A client
// without a number among the clients is distinguished from others by key.
func New(algorithm subset.Algorithm, size int, key uint64, zone string) *Subset {
	return &Subset{core: core.NewSubset(algorithm, size, key), zone: zone}
}

// Known returns the number of servers in the snapshot.
func (s *Subset) Known() int { return len(s.snapshot.Servers) }

// Borrowed reports whether servers are borrowed.
func (s *Subset) Borrowed() bool { return s.core.Borrowed() }

// UpdateBorrowing borrows servers if all of the subset are dead or full, and gives them back
// when they recover. It reports whether Choose has changed.
func (s *Subset) UpdateBorrowing(l *core.Ladder) (changed bool) { return s.core.UpdateBorrowing(l) }

// Follow sets the snapshot. It rejects one with so many unused numbers that choosing would
// take long, since the caller holds the lock of its pool.
func (s *Subset) Follow(snapshot discovery.Snapshot) error {
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
	s.followZones()
	return nil
}

// followZones sets the fields that depend on the zones of the servers.
func (s *Subset) followZones() {
	s.zoned = s.zone != "" && slices.ContainsFunc(s.snapshot.Servers, func(server discovery.Server) bool { return server.Zone != "" })
	if !s.zoned {
		return
	}
	var numbers []int
	for _, server := range s.snapshot.Servers {
		if !discovery.OtherZone(s.zone, server.Zone) {
			numbers = append(numbers, server.Number)
		}
	}
	s.stride = core.Stride(numbers)
}

// isNear reports whether a server, which exists, is in the client's zone.
func (s *Subset) isNear(number int) bool {
	place, _ := s.place(number)
	return !discovery.OtherZone(s.zone, s.snapshot.Servers[place].Zone)
}

// place returns the index of a server by its number.
func (s *Subset) place(number int) (place int, ok bool) {
	if s.places == nil {
		return number, number < len(s.snapshot.Servers)
	}
	place, ok = s.places[number]
	return place, ok
}

func (s *Subset) exists(number int) bool {
	_, ok := s.place(number)
	return ok
}

// Choose returns the servers to use. Both slices are valid until the next call.
func (s *Subset) Choose() (own, borrowed []discovery.Server) {
	view := core.View{
		Numbers:   s.snapshot.Numbers,
		Self:      s.snapshot.Self,
		Frontends: s.snapshot.Frontends,
		Exists:    s.exists,
	}
	if s.zoned {
		view.Near, view.Stride = s.isNear, s.stride
	}
	numbers, more := s.core.Choose(view)
	s.servers = s.servers[:0]
	for _, list := range [][]int{numbers, more} {
		for _, number := range list {
			place, _ := s.place(number)
			s.servers = append(s.servers, s.snapshot.Servers[place])
		}
	}
	return s.servers[:len(numbers)], s.servers[len(numbers):]
}
