package core

import (
	"slices"

	"docstore/boxcarrpc/subset"
)

// maxBorrowed is the maximum number of borrowed servers, in multiples of the size.
const maxBorrowed = 2

// A Subset chooses the servers of a numbered set that a client uses: size servers, and
// more while all of these are dead or full.
//
// A number without a server is skipped and the algorithm is asked for more numbers. For
// algorithms with the prefix property (all but roundrobin and deterministic) the other
// choices do not change. A server that is down keeps its place until the whole subset
// is down. Then the client borrows size servers, and size more if these are down too.
// It gives them back when half of the own servers answer requests. The same happens if
// slots are missing and no own server grants one; then the client gives the borrowed
// servers back when all of its slots are of own ones.
//
// A client without a number uses rendezvous with its key. A client that no longer knows
// its number continues to use the last one.
type Subset struct {
	algorithm subset.Algorithm
	anonymous subset.Algorithm // for a client without a number
	size      int
	key       int
	self      int   // the client's number, -1 if it never had one
	level     int   // borrowed servers in multiples of size
	short     bool  // borrowed because the others were full
	asked     []int // scratch: result of the algorithm
	had       []int // scratch: sorted choices
	chosen    []int
}

// NewSubset returns a subset of size servers, at least 1. key identifies the client while
// it has no number.
func NewSubset(algorithm subset.Algorithm, size int, key uint64) Subset {
	anonymous, err := subset.ByName("rendezvous", nil)
	if err != nil {
		panic(err) // the name is valid
	}
	return Subset{algorithm: algorithm, anonymous: anonymous, size: size, key: int(key % subset.MaxTasks), self: -1}
}

// A View is a numbered set of servers as a client knows it.
type View struct {
	Numbers   int                   // highest number of a server plus one
	Self      int                   // the client's number, -1 if unknown
	Frontends int                   // number of clients, 0 if unknown
	Exists    func(number int) bool // whether there is a server with this number
}

// Choose returns the numbers of the servers to use, most preferred first: the client's
// own and the borrowed ones. Both slices are valid until the next Choose.
func (s *Subset) Choose(v View) (own, borrowed []int) {
	if v.Self >= 0 {
		s.self = v.Self
	}
	s.chosen = s.choose(s.chosen[:0], v, s.size)
	count := len(s.chosen)
	if s.level > 0 {
		s.chosen = s.choose(s.chosen, v, s.size*(1+s.level))
	}
	return s.chosen[:count:count], s.chosen[count:]
}

// choose appends to dst the first numbers that have a server and that are not in dst,
// until dst has size numbers. It doubles the size that it asks the algorithm for until
// the result is sufficient, so that it asks for less than four times the necessary
// numbers in total.
func (s *Subset) choose(dst []int, v View, size int) []int {
	algorithm, self := s.algorithm, s.self
	if self < 0 {
		algorithm, self = s.anonymous, s.key
	}
	had := len(dst)
	s.had = append(s.had[:0], dst...)
	slices.Sort(s.had)
	for ask := min(size, v.Numbers); ; {
		s.asked = algorithm.Subset(s.asked[:0], self, v.Frontends, v.Numbers, ask)
		for _, number := range s.asked {
			if len(dst) == size {
				break
			}
			if _, known := slices.BinarySearch(s.had, number); !known && v.Exists(number) {
				dst = append(dst, number)
			}
		}
		if len(dst) == size || ask >= v.Numbers {
			return dst
		}
		ask, dst = min(2*ask, v.Numbers), dst[:had]
	}
}

// UpdateBorrowing checks the chosen servers. It returns true if the caller must call
// Choose again: all servers are dead or full, or enough of them have recovered.
func (s *Subset) UpdateBorrowing(l *Ladder) (changed bool) {
	short := l.starved && !l.Full()
	switch {
	case s.level < maxBorrowed && (short || l.held == 0 && l.allFailing()):
		s.level++
		s.short = s.short || short
		return true
	case s.level > 0 && s.enough(l):
		s.level, s.short = 0, false
		return true
	}
	return false
}

// enough reports whether the client no longer needs the borrowed servers.
func (s *Subset) enough(l *Ladder) bool {
	if s.short {
		return l.Full() && l.standing(l.highest(none)) == owned
	}
	return l.recovered()
}

// Borrowed reports whether the subset includes borrowed servers.
func (s *Subset) Borrowed() bool { return s.level > 0 }

// allFailing reports whether the set has servers and all of them are failing.
func (l *Ladder) allFailing() bool {
	for place := range l.members {
		if p := &l.peers[l.memberAt(place)]; !p.failing() {
			return false
		}
	}
	return l.members > 0
}

// recovered reports whether at least half of the servers that are not borrowed are live
// and trusted, or there are none.
func (l *Ladder) recovered() bool {
	own, healthy := 0, 0
	for place := range l.members {
		if p := &l.peers[l.memberAt(place)]; p.standing() == owned {
			own++
			if p.trusted && p.live() {
				healthy++
			}
		}
	}
	return 2*healthy >= own
}
