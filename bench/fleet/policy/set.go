package policy

import (
	"math"
	"math/rand/v2"
	"slices"

	"docstore/boxcarrpc/core"
)

const never = math.MaxInt64

// The wait before a server is connected again after a failure, in nanoseconds: it doubles from
// restBase to restLimit, as in core's ladder.
const (
	restBase  = 100e6
	restLimit = 5e9
)

// A set has the servers of a policy with a connection to each of them, and the number of the client's
// requests at each. Policies that embed it add the choice.
type set struct {
	members []member
	ready   []int32 // entries with a connection
	due     []int32 // entries to connect now
	vacant  []int32 // entries without a server
	resting int     // entries to connect later
	wake    int64   // no rest ends before
}

type member struct {
	server   int32
	inFlight int32
	place    int32 // in ready, -1 if it is not there
	use      uint32
	level    uint8 // failures in a row
	member   bool
	resting  bool
	until    int64 // end of the wait
}

func newSet(o *Options) set {
	return set{
		members: make([]member, 0, o.Servers),
		ready:   make([]int32, 0, o.Servers),
		due:     make([]int32, 0, o.Servers),
		wake:    never,
	}
}

// Join implements Policy.
func (s *set) Join(_ int64, server int32, _ *rand.PCG) { s.join(server) }

func (s *set) join(server int32) (entry int32) {
	if n := len(s.vacant); n > 0 {
		entry = s.vacant[n-1]
		s.vacant = s.vacant[:n-1]
	} else {
		entry = int32(len(s.members))
		s.members = append(s.members, member{})
	}
	s.members[entry] = member{server: server, place: -1, member: true, use: s.members[entry].use + 1}
	s.due = append(s.due, entry)
	return entry
}

// Leave implements Policy.
func (s *set) Leave(_ int64, server int32, _ *rand.PCG) {
	if entry := s.find(server, -1); entry >= 0 {
		s.leave(entry)
	}
}

func (s *set) leave(entry int32) {
	s.unready(entry)
	m := &s.members[entry]
	if m.resting {
		s.resting--
	}
	*m = member{place: -1, use: m.use}
	s.due = slices.DeleteFunc(s.due, func(e int32) bool { return e == entry })
	s.vacant = append(s.vacant, entry)
}

// find returns the entry of a server, or -1. entry is tried first.
func (s *set) find(server, entry int32) int32 {
	if entry >= 0 && int(entry) < len(s.members) && s.holds(entry, server) {
		return entry
	}
	for i := range s.members {
		if s.holds(int32(i), server) {
			return int32(i)
		}
	}
	return -1
}

func (s *set) holds(entry, server int32) bool {
	return s.members[entry].member && s.members[entry].server == server
}

func (s *set) makeReady(entry int32) {
	if m := &s.members[entry]; m.place < 0 {
		m.place = int32(len(s.ready))
		s.ready = append(s.ready, entry)
	}
}

func (s *set) unready(entry int32) {
	m := &s.members[entry]
	if m.place < 0 {
		return
	}
	last := s.ready[len(s.ready)-1]
	s.ready[m.place] = last
	s.members[last].place = m.place
	s.ready = s.ready[:len(s.ready)-1]
	m.place = -1
}

// rest schedules the next connection to a server.
func (s *set) rest(now int64, entry int32, rng *rand.PCG) {
	s.unready(entry)
	m := &s.members[entry]
	if m.resting || slices.Contains(s.due, entry) {
		return
	}
	m.resting = true
	s.resting++
	pause := min(int64(restBase)<<min(m.level, 62-27), restLimit)
	m.until = now + pause/2 + uniform(rng, pause+1)
	m.level = min(m.level+1, 30)
	s.wake = min(s.wake, m.until)
}

// take begins a request.
func (s *set) take(entry int32) (Choice, bool) {
	m := &s.members[entry]
	m.inFlight++
	return Choice{Server: m.server, Entry: entry, use: m.use}, true
}

// Done implements Policy.
func (s *set) Done(now int64, c Choice, r Result, rng *rand.PCG) { s.done(now, c, r, rng) }

// done ends a request and reports whether its server is still in the set.
func (s *set) done(now int64, c Choice, r Result, rng *rand.PCG) bool {
	m := &s.members[c.Entry]
	if m.use != c.use || !m.member {
		return false
	}
	m.inFlight--
	switch r.Outcome {
	case Success:
		m.level = 0
	case Broken:
		s.rest(now, c.Entry, rng)
	}
	return true
}

// Next implements Policy.
func (s *set) Next(now int64, _ *rand.PCG) (Action, bool) { return s.next(now) }

func (s *set) next(now int64) (Action, bool) {
	if now >= s.wake {
		s.wake = never
		for i := range s.members {
			m := &s.members[i]
			switch {
			case !m.resting:
			case now >= m.until:
				m.resting = false
				s.resting--
				s.due = append(s.due, int32(i))
			default:
				s.wake = min(s.wake, m.until)
			}
		}
	}
	if len(s.due) == 0 {
		return Action{}, false
	}
	entry := s.due[len(s.due)-1]
	s.due = s.due[:len(s.due)-1]
	return Action{Kind: Connect, Server: s.members[entry].server, Below: core.NoSlot, Entry: entry}, true
}

// Wake implements Policy.
func (s *set) Wake() int64 { return s.wake }

// Learn implements Policy.
func (s *set) Learn(now int64, n News, rng *rand.PCG) { s.learn(now, n, rng) }

// learn returns the entry of the news' server, -1 if it is not in the set.
func (s *set) learn(now int64, n News, rng *rand.PCG) (entry int32) {
	entry = s.find(n.Server, n.Entry)
	if entry < 0 {
		return entry
	}
	switch n.Kind {
	case Connected:
		s.makeReady(entry)
	case Declined, Failed, Lost, Draining:
		s.rest(now, entry, rng)
	}
	return entry
}

// pickAttempts is the number of random draws before all servers are examined in order.
const pickAttempts = 4

// any returns a random server with a connection, if possible one that was not tried.
func (s *set) any(tried []int32, rng *rand.PCG) (entry int32, ok bool) {
	n := int64(len(s.ready))
	if n == 0 {
		return -1, false
	}
	entry = s.ready[uniform(rng, n)]
	if len(tried) == 0 {
		return entry, true
	}
	for range pickAttempts {
		if !slices.Contains(tried, s.members[entry].server) {
			return entry, true
		}
		entry = s.ready[uniform(rng, n)]
	}
	return s.after(uniform(rng, n), tried), true
}

// after returns the first server with a connection, from a place on, that was not tried, or the one
// before the place if all were tried.
func (s *set) after(place int64, tried []int32) (entry int32) {
	n := int64(len(s.ready))
	for i := range n {
		if entry = s.ready[(place+i)%n]; !slices.Contains(tried, s.members[entry].server) {
			return entry
		}
	}
	return entry
}

// two returns two random servers with a connection, if possible different ones that were not tried.
func (s *set) two(tried []int32, rng *rand.PCG) (a, b int32, ok bool) {
	n := int64(len(s.ready))
	switch {
	case n == 0:
		return -1, -1, false
	case n == 1 || len(tried) > 0:
		a, _ = s.any(tried, rng)
		b, _ = s.any(tried, rng)
		return a, b, true
	}
	i, j := uniform(rng, n), uniform(rng, n-1)
	if j >= i {
		j++
	}
	return s.ready[i], s.ready[j], true
}

// uniform returns a uniformly distributed number from 0 to n-1.
func uniform(rng *rand.PCG, n int64) int64 { return rand.New(rng).Int64N(n) }
