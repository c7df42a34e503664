package core

import (
	"slices"

	"docstore/boxcarrpc/subset"
)

// maxBorrowed is how many times its size a subset borrows at most.
const maxBorrowed = 2

// A Subset decides which servers of a numbered set a client uses: size of them, as
// an algorithm chooses them, and while all of these are dead more of them.
//
// A number without a server is skipped: the algorithm is asked for more. If it has the prefix property, as all but roundrobin and
// deterministic have, the others are still those that it would have chosen. A
// server that is merely down keeps its place: nobody moves because of it, until
// the whole subset is down. Then the client borrows the next size, and the next
// again if these are down too, and no more; it gives them back when half of its
// own answer requests.
//
// A client that knows no number of its own takes rendezvous with its key, until
// it knows one. One that no longer knows its number keeps to the last: what it is
// connected to stays right as long as nobody else has taken over.
type Subset struct {
	algorithm subset.Algorithm
	anonymous subset.Algorithm
	size      int
	key       int
	self      int // -1 until it is known
	level     int // times that it has borrowed
	asked     []int
	had       []int // sorted
	chosen    []int
}

// NewSubset makes a subset of size servers, at least 1. key tells the client from
// others while it has no number.
func NewSubset(algorithm subset.Algorithm, size int, key uint64) Subset {
	anonymous, err := subset.ByName("rendezvous", nil)
	if err != nil {
		panic(err) // there is one
	}
	return Subset{algorithm: algorithm, anonymous: anonymous, size: size, key: int(key % subset.MaxTasks), self: -1}
}

// A View is what a client knows of a numbered set.
type View struct {
	Numbers   int                   // highest number of a server plus one
	Self      int                   // the client's own, -1 if it knows none
	Frontends int                   // how many clients there are, 0 if unknown
	Exists    func(number int) bool // whether there is a server of that number
}

// Choose returns the numbers of the servers to use, most preferred first: the
// client's own, and those that it borrows. Both are valid until the next Choose.
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

// choose appends to dst the first numbers that have a server and that dst does not
// hold yet, until dst has size of them. It doubles the question until the answer is
// enough, so that all questions together are for less than four times the numbers
// that the last one needed.
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

// UpdateBorrowing looks at the servers of a ladder that were chosen and says whether to
// choose anew: because all are dead, or enough of them are well again.
func (s *Subset) UpdateBorrowing(l *Ladder) (again bool) {
	switch {
	case s.level < maxBorrowed && l.held == 0 && l.hopeless():
		s.level++
		return true
	case s.level > 0 && l.recovered():
		s.level = 0
		return true
	}
	return false
}

// Borrowed reports whether the subset is larger than its size because its own
// servers are dead.
func (s *Subset) Borrowed() bool { return s.level > 0 }

// hopeless reports whether every server of the set has failed since it last
// answered a request well.
func (l *Ladder) hopeless() bool {
	for i := range l.peers[:l.extent] {
		if p := &l.peers[i]; p.member && !p.failing() {
			return false
		}
	}
	return l.members > 0
}

// recovered reports whether at least half of the servers that are not borrowed
// answer requests well, or there are none.
func (l *Ladder) recovered() bool {
	own, well := 0, 0
	for i := range l.peers[:l.extent] {
		if p := &l.peers[i]; p.standing() == owned {
			own++
			if p.trusted && p.live() {
				well++
			}
		}
	}
	return 2*well >= own
}
