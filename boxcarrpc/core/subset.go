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
// A client with a zone uses size servers of its zone, and a quarter as many of the others,
// for the spare slots of its ladder; if its zone has too few, others make up for them. It
// borrows servers of other zones first: its zone is probably lost.
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
	Near      func(number int) bool // whether it is in the client's zone; nil if there are no zones
	Stride    int                   // of the numbers in the client's zone, with Near
}

// Stride returns the smallest difference of two numbers, which it sorts. Subsets within a
// zone whose numbers are 1, 4, 7 and so on are chosen like those of a fleet with the numbers
// 0, 1, 2: a zone that has every third number would leave gaps in all lots of rocksteadier.
// A server that is missing does not change the stride.
func Stride(numbers []int) int {
	slices.Sort(numbers)
	stride := 0
	for i := 1; i < len(numbers); i++ {
		if gap := numbers[i] - numbers[i-1]; stride == 0 || gap < stride {
			stride = gap
		}
	}
	return max(stride, 1)
}

// Choose returns the numbers of the servers to use, most preferred first: the client's
// own and the borrowed ones. Both slices are valid until the next Choose.
func (s *Subset) Choose(v View) (own, borrowed []int) {
	if v.Self >= 0 {
		s.self = v.Self
	}
	if v.Near == nil {
		s.chosen = s.choose(s.chosen[:0], v, anywhere, s.size)
	} else {
		s.chosen = s.choose(s.chosen[:0], v, nearby, s.size)
		spare := (s.size + sparePart - 1) / sparePart
		s.chosen = s.choose(s.chosen, v, faraway, max(s.size, len(s.chosen)+spare))
	}
	count := len(s.chosen)
	if borrow := count + s.size*s.level; s.level > 0 {
		if v.Near != nil {
			s.chosen = s.choose(s.chosen, v, faraway, borrow)
		}
		s.chosen = s.choose(s.chosen, v, anywhere, borrow)
	}
	return s.chosen[:count:count], s.chosen[count:]
}

// A place selects servers by zone.
type place uint8

const (
	anywhere place = iota
	nearby         // in the client's zone
	faraway        // in another zone
)

func (v *View) has(number int, at place) bool {
	return v.Exists(number) && (at == anywhere || v.Near(number) == (at == nearby))
}

// choose appends to dst the first numbers that have a server there and that are not in
// dst, until dst has size numbers. It doubles the size that it asks the algorithm for until
// the result is sufficient, so that it asks for less than four times the necessary
// numbers in total.
func (s *Subset) choose(dst []int, v View, at place, size int) []int {
	algorithm, self := s.algorithm, s.self
	if self < 0 {
		algorithm, self = s.anonymous, s.key
	}
	stride := 1
	if at == nearby {
		stride = max(v.Stride, 1)
	}
	numbers := (v.Numbers + stride - 1) / stride
	had := len(dst)
	s.had = append(s.had[:0], dst...)
	slices.Sort(s.had)
	for ask := min(size, numbers); ; {
		s.asked = algorithm.Subset(s.asked[:0], self, v.Frontends, numbers, ask)
		for _, asked := range s.asked {
			if len(dst) == size {
				break
			}
			for number := asked * stride; number < min((asked+1)*stride, v.Numbers); number++ {
				if _, known := slices.BinarySearch(s.had, number); !known && v.has(number, at) {
					dst = append(dst, number)
					break
				}
			}
		}
		if len(dst) == size || ask >= numbers {
			return dst
		}
		ask, dst = min(2*ask, numbers), dst[:had]
	}
}

// UpdateBorrowing checks the chosen servers. It returns true if the caller must call
// Choose again: all servers are dead or full, or enough of them have recovered.
func (s *Subset) UpdateBorrowing(l *Ladder) (changed bool) {
	short := l.starved && !l.Full()
	switch {
	case s.level < maxBorrowed && (short || l.held == 0 && l.allFailing()), s.level == 0 && l.lostZone():
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

// lostZone reports whether the client's zone has servers in the set, the ladder has no slot
// of them, and more than half of them are failing, so that it has not recovered. The spare slots
// are of few servers.
func (l *Ladder) lostZone() bool {
	if l.held == 0 || l.held > l.farHeld {
		return false
	}
	near, failing := 0, 0
	for place := range l.members {
		if p := &l.peers[l.memberAt(place)]; !p.far {
			near++
			if p.failing() {
				failing++
			}
		}
	}
	return 2*failing > near
}

// recovered reports whether at least half of the servers that are not borrowed are live
// and trusted, or there are none: of a ladder with a zone, its servers of the zone.
func (l *Ladder) recovered() bool {
	own, healthy, near := 0, 0, l.hasNear()
	for place := range l.members {
		if p := &l.peers[l.memberAt(place)]; p.standing() == owned && (!near || !p.far) {
			own++
			if p.trusted && p.live() {
				healthy++
			}
		}
	}
	return 2*healthy >= own
}

// hasNear reports whether servers of the client's zone are in the set, without borrowed
// ones.
func (l *Ladder) hasNear() bool {
	for place := range l.members {
		if p := &l.peers[l.memberAt(place)]; p.standing() == owned && !p.far {
			return true
		}
	}
	return false
}
