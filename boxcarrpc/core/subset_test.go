package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/subset"
	"docstore/internal/testseed"
)

func algorithm(t testing.TB, name string) subset.Algorithm {
	a, err := subset.ByName(name, nil)
	require.NoError(t, err)
	return a
}

func everywhere(int) bool { return true }

// chosenOf is Choose with copies of the results.
func (s *Subset) chosenOf(v View) (own, borrowed []int) {
	own, borrowed = s.Choose(v)
	return slices.Clone(own), slices.Clone(borrowed)
}

func TestSubsetSkipsMissingNumbers(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for _, name := range subset.Names() {
		a := algorithm(t, name)
		for range 200 {
			numbers, size, self := 1+rng.IntN(120), 1+rng.IntN(30), rng.IntN(300)
			holes, share := map[int]bool{}, rng.Float64()
			for n := range numbers {
				holes[n] = rng.Float64() < share
			}
			s := NewSubset(a, size, 0)
			own, borrowed := s.Choose(View{Numbers: numbers, Self: self, Exists: func(n int) bool { return !holes[n] }})
			require.Empty(t, borrowed)
			servers := 0
			for n := range numbers {
				if !holes[n] {
					servers++
				}
			}
			require.Len(t, own, min(size, servers))
			require.Len(t, distinct(own), len(own))
			if name == "roundrobin" || name == "deterministic" {
				continue // no prefix property
			}
			all := a.Subset(nil, self, 0, numbers, numbers)
			all = slices.DeleteFunc(all, func(n int) bool { return holes[n] })
			require.True(t, slices.Equal(all[:len(own)], own), name)
		}
	}
	s := NewSubset(algorithm(t, "rocksteadier"), 3, 0)
	own, _ := s.Choose(View{Self: 1, Exists: everywhere})
	require.Empty(t, own, "no servers")
}

func distinct(list []int) map[int]bool {
	set := map[int]bool{}
	for _, x := range list {
		set[x] = true
	}
	return set
}

func TestASubsetWithoutANumberIsKeyed(t *testing.T) {
	view := View{Numbers: 1000, Self: -1, Exists: everywhere}
	s, again, other := NewSubset(algorithm(t, "rocksteadier"), 20, 7), NewSubset(algorithm(t, "ringsteady"), 20, 7), NewSubset(algorithm(t, "rocksteadier"), 20, 8)
	own, _ := s.chosenOf(view)
	same, _ := again.chosenOf(view)
	different, _ := other.chosenOf(view)
	require.Equal(t, algorithm(t, "rendezvous").Subset(nil, 7, 0, 1000, 20), own)
	require.Equal(t, own, same)
	require.NotEqual(t, own, different)

	view.Self = 3
	numbered, _ := s.chosenOf(view)
	require.Equal(t, algorithm(t, "rocksteadier").Subset(nil, 3, 0, 1000, 20), numbered)
	view.Self = -1
	kept, _ := s.chosenOf(view)
	require.Equal(t, numbered, kept, "the last number stays in use")
}

// A subsetClient is a client with a subset whose servers succeed and fail as the test
// says.
type subsetClient struct {
	t      *testing.T
	rng    *rand.PCG
	now    int64
	subset Subset
	view   View
	ladder Ladder
}

func newSubsetClient(t *testing.T, name string, numbers, size, slots int) *subsetClient {
	c := &subsetClient{t: t, rng: testseed.PCG(t)}
	c.subset = NewSubset(algorithm(t, name), size, 0)
	c.view = View{Numbers: numbers, Self: 5, Exists: everywhere}
	c.ladder = NewLadder(slots, make([]Slot, 2*slots), make([]Peer, numbers))
	c.adopt()
	return c
}

// adopt makes the subset the servers of the ladder and returns it.
func (c *subsetClient) adopt() (own, borrowed []int) {
	own, borrowed = c.subset.chosenOf(c.view)
	for _, n := range own {
		c.ladder.Join(c.now, int32(n), c.rng)
	}
	for _, n := range borrowed {
		c.ladder.Borrow(c.now, int32(n), c.rng)
	}
	for n := range c.view.Numbers {
		if !slices.Contains(own, n) && !slices.Contains(borrowed, n) {
			c.ladder.Leave(int32(n))
		}
	}
	c.ladder.check(c.t)
	return own, borrowed
}

// lease offers a slot and returns its entry. It is not ok if the ladder refuses it.
func (c *subsetClient) lease(server, number int) (entry int32, ok bool) {
	entry, victim, gone, ok := c.ladder.Grant(int32(server), int32(number))
	if victim != none {
		require.True(c.t, gone, "no slot is busy")
	}
	c.ladder.check(c.t)
	return entry, ok
}

// succeed records a successful request and returns how many surplus slots were retired.
func (c *subsetClient) succeed(server int) (gone int) {
	c.ladder.RecordOutcome(c.now, int32(server), Success, c.rng)
	for {
		entry, ok := c.ladder.Surplus()
		if !ok {
			return gone
		}
		require.True(c.t, c.ladder.Retire(entry))
		c.ladder.check(c.t)
		gone++
	}
}

func (c *subsetClient) crash(server int) {
	for i := range c.ladder.slots {
		if s := &c.ladder.slots[i]; s.state != slotUnused && s.peer == int32(server) {
			c.ladder.Lose(int32(i))
		}
	}
	c.ladder.Quarantine(c.now, int32(server), c.rng)
}

// recover ends all quarantines.
func (c *subsetClient) recover() {
	c.now += 2 * quarantineLimit
	c.ladder.Advance(c.now, c.rng)
}

func (c *subsetClient) holds(server int) int { return c.ladder.Peer(int32(server)).Held }

func TestDeadSubsetBorrowsAtMostTwice(t *testing.T) {
	for _, name := range subset.Names() {
		t.Run(name, func(t *testing.T) {
			c := newSubsetClient(t, name, 100, 4, 8)
			own, _ := c.adopt()
			for _, n := range own {
				_, ok := c.lease(n, 0)
				require.True(t, ok)
			}
			require.False(t, c.subset.UpdateBorrowing(&c.ladder))
			for _, n := range own[1:] {
				c.crash(n)
			}
			require.False(t, c.subset.UpdateBorrowing(&c.ladder), "one server is live")
			c.crash(own[0])
			require.True(t, c.subset.UpdateBorrowing(&c.ladder))
			still, borrowed := c.adopt()
			require.Equal(t, own, still)
			require.Len(t, distinct(append(still, borrowed...)), 8)
			c.recover()
			require.False(t, c.subset.UpdateBorrowing(&c.ladder), "borrowed servers have not failed, own servers have not answered")
			for _, n := range borrowed {
				c.crash(n)
			}
			require.True(t, c.subset.UpdateBorrowing(&c.ladder))
			still, borrowed = c.adopt()
			require.Equal(t, own, still)
			require.Len(t, borrowed, 8)
			for _, n := range borrowed {
				c.crash(n)
			}
			require.False(t, c.subset.UpdateBorrowing(&c.ladder), "the maximum is borrowed")
			require.Equal(t, 12, c.ladder.Members())
			if name != "roundrobin" && name != "deterministic" {
				require.Equal(t, algorithm(t, name).Subset(nil, 5, 0, 100, 12), append(still, borrowed...))
			}
		})
	}
}

func TestSubsetReturnsBorrowedServersWhenHalfRecovered(t *testing.T) {
	c := newSubsetClient(t, "rocksteadier", 100, 4, 4)
	own, _ := c.adopt()
	for _, n := range own {
		c.crash(n)
	}
	require.True(t, c.subset.UpdateBorrowing(&c.ladder))
	_, borrowed := c.adopt()
	for _, n := range borrowed { // the ladder is full of slots 0 of trusted servers
		_, ok := c.lease(n, 0)
		require.True(t, ok)
		c.succeed(n)
	}
	_, ok := c.lease(borrowed[0], 0)
	require.False(t, ok)

	c.recover()
	for i, n := range own[:2] {
		require.False(t, c.subset.UpdateBorrowing(&c.ladder))
		below, ok := c.ladder.Bid(int32(n))
		require.True(t, ok)
		require.Equal(t, NoSlot, below, "any own slot replaces a borrowed one")
		_, ok = c.lease(n, 9)
		require.True(t, ok)
		require.Equal(t, 5, c.ladder.Held(), "an extra slot until it has answered")
		require.Equal(t, 1, c.succeed(n))
		require.Equal(t, i+1, c.holds(own[0])+c.holds(own[1]))
	}
	require.True(t, c.subset.UpdateBorrowing(&c.ladder))
	_, borrowed = c.adopt()
	require.Empty(t, borrowed)
	require.False(t, c.subset.Borrowed())
	require.Equal(t, 4, c.ladder.Held(), "borrowed slots stay until they are replaced")
}

func TestBorrowedSlotDoesNotReplaceOwnSlot(t *testing.T) {
	c := newSubsetClient(t, "ringsteady", 10, 2, 2)
	own, _ := c.adopt()
	for _, n := range own {
		_, ok := c.lease(n, 7)
		require.True(t, ok)
	}
	c.ladder.Borrow(c.now, int32(own[0]), c.rng)
	other := c.subset.algorithm.Subset(nil, 5, 0, 10, 3)[2]
	c.ladder.Borrow(c.now, int32(other), c.rng)
	_, ok := c.lease(other, 3)
	require.True(t, ok, "a lower number replaces another borrowed slot")
	require.Equal(t, []int{0, 1, 1}, []int{c.holds(own[0]), c.holds(own[1]), c.holds(other)})
	c.ladder.Leave(int32(own[0]))
	third := c.subset.algorithm.Subset(nil, 5, 0, 10, 4)[3]
	c.ladder.Borrow(c.now, int32(third), c.rng)
	c.ladder.Leave(int32(other))
	_, ok = c.lease(third, 9)
	require.True(t, ok, "replaces a slot of a server that has left")
	c.ladder.Leave(int32(third))
	c.ladder.Join(c.now, int32(other), c.rng)
	_, ok = c.lease(other, 5)
	require.True(t, ok)
	require.Equal(t, []int{1, 1, 0}, []int{c.holds(own[1]), c.holds(other), c.holds(third)})
	c.ladder.Borrow(c.now, int32(third), c.rng)
	_, ok = c.lease(third, 0)
	require.False(t, ok, "a borrowed slot does not replace an own one")
}

// seek makes lease requests of a client with calls for a time. boards are those of the servers.
func (c *subsetClient) seek(r *LeaseSeeker, boards []Board, during int64) {
	release := func(entry int32) {
		number, peer, _, _, _ := c.ladder.Slot(entry)
		require.True(c.t, boards[peer].Release(number))
	}
	for end := c.now + during; ; {
		r.Used(c.now, c.rng)
		if c.subset.UpdateBorrowing(&c.ladder) {
			c.adopt()
			r.RequestNow(c.now)
		}
		wake := max(c.now, r.Wake(&c.ladder))
		if wake > end {
			c.now = end
			return
		}
		c.now = wake
		peer, below, ok := r.NextRequest(c.now, &c.ladder, c.rng)
		if !ok {
			continue
		}
		number, ok := boards[peer].Lease(below)
		if !ok {
			r.Done(c.now, &c.ladder, peer, Declined, c.rng)
			continue
		}
		_, victim, gone, ok := c.ladder.Grant(peer, number)
		require.True(c.t, ok)
		if victim != none && gone {
			release(victim)
		}
		r.Done(c.now, &c.ladder, peer, Granted, c.rng)
		c.ladder.RecordOutcome(c.now, peer, Success, c.rng)
		for entry, ok := c.ladder.Surplus(); ok; entry, ok = c.ladder.Surplus() {
			require.True(c.t, c.ladder.Retire(entry))
			release(entry)
		}
		c.ladder.check(c.t)
	}
}

// The servers of a subset are not dead but have no free slot. The client borrows others, and
// gives them back when it has all of its slots on its own ones.
func TestAFullSubsetBorrows(t *testing.T) {
	for _, size := range []int{1, 4, 20} {
		t.Run(fmt.Sprint("size=", size), func(t *testing.T) {
			slots := 2 * size
			c := newSubsetClient(t, "rocksteadier", 200, size, slots)
			own, _ := c.adopt()
			boards := make([]Board, 200)
			limit := func(n, slots int) { boards[n] = NewBoard(make([]uint64, BoardWords(slots)), slots) }
			for n := range boards {
				limit(n, 64)
			}
			for _, n := range own {
				limit(n, 0)
			}
			held := func() (mine, others int) {
				for _, n := range own {
					mine += c.holds(n)
				}
				return mine, c.ladder.Held() - mine
			}
			var r LeaseSeeker
			c.seek(&r, boards, 2*second)
			mine, others := held()
			require.Equal(t, [2]int{0, slots}, [2]int{mine, others})
			require.True(t, c.subset.Borrowed())
			require.Equal(t, 2*size, c.ladder.Members())

			limit(own[0], 1)
			c.seek(&r, boards, 2*3600*second)
			mine, others = held()
			require.Equal(t, [2]int{1, slots - 1}, [2]int{mine, others}, "the borrowed servers are still needed")
			require.True(t, c.subset.Borrowed())

			for _, n := range own[1:] {
				limit(n, 64)
			}
			if size == 1 {
				boards[own[0]] = NewBoard([]uint64{1}, 64)
				boards[own[0]].taken = 1
			}
			c.seek(&r, boards, 2*3600*second)
			mine, others = held()
			require.Equal(t, [2]int{slots, 0}, [2]int{mine, others})
			require.False(t, c.subset.Borrowed())
			require.Equal(t, size, c.ladder.Members())
		})
	}
}

// A client without servers, or that waits for the first answer, borrows nothing.
func TestASubsetThatHasNotAnsweredBorrowsNothing(t *testing.T) {
	c := newSubsetClient(t, "rocksteadier", 100, 4, 8)
	var r LeaseSeeker
	for range 4 {
		_, _, ok := r.NextRequest(c.now, &c.ladder, c.rng)
		require.True(t, ok)
	}
	for range 20 {
		c.now += 50 * millisecond
		_, _, ok := r.NextRequest(c.now, &c.ladder, c.rng)
		require.False(t, ok)
		require.False(t, c.subset.UpdateBorrowing(&c.ladder))
	}
	empty := NewLadder(8, make([]Slot, 9), nil)
	for range 20 {
		c.now += second
		_, _, ok := r.NextRequest(c.now, &empty, c.rng)
		require.False(t, ok)
		require.False(t, c.subset.UpdateBorrowing(&empty))
	}
}

// replaceAll leases a slot of each server, makes all of them trusted, and then changes
// the set to other servers.
func (c *subsetClient) replaceAll() (old, replaced []int) {
	c.t.Helper()
	old, _ = c.adopt()
	for _, n := range old {
		_, ok := c.lease(n, 0)
		require.True(c.t, ok)
		c.succeed(n)
	}
	c.view.Self++
	replaced, _ = c.adopt()
	return old, replaced
}

// When the whole set changes, each old slot stays until a new server has answered.
func TestMakeBeforeBreak(t *testing.T) {
	c := newSubsetClient(t, "roundrobin", 40, 10, 10)
	old, replaced := c.replaceAll()
	require.NotContains(t, replaced, old[0])
	held := func() (sum int) {
		for _, n := range old {
			sum += c.holds(n)
		}
		return sum
	}
	for _, n := range replaced[:5] {
		_, ok := c.lease(n, 30)
		require.True(t, ok)
		_, ok = c.lease(n, 31)
		require.False(t, ok, "one slot until it has answered")
	}
	require.Equal(t, 10, held())
	require.Equal(t, 15, c.ladder.Held())
	for i, n := range replaced[:5] {
		require.Equal(t, 1, c.succeed(n))
		require.Equal(t, 9-i, held())
	}
	c.crash(replaced[0])
	require.Zero(t, c.succeed(replaced[1]))
	for _, n := range replaced[1:5] {
		if held() > 0 {
			_, ok := c.lease(n, 31)
			require.True(t, ok, "a trusted server replaces slots at once")
		}
	}
	require.Equal(t, 10, c.ladder.Held())
	for _, n := range replaced[5:] {
		_, _ = c.lease(n, 32)
	}
	for entry := range c.ladder.slots { // LeaveAfter is over for the old servers
		if s := &c.ladder.slots[entry]; s.state != slotUnused && slices.Contains(old, int(s.peer)) {
			c.ladder.Retire(int32(entry))
		}
	}
	c.ladder.check(t)
	require.Zero(t, held())
	require.Greater(t, c.ladder.Held(), 10)
	c.succeed(replaced[5])
	require.Equal(t, 10, c.ladder.Held())
}

// A client with one request at a time would never use the high slots of new servers and
// stay on those that left. The new slots rank first once.
func TestLowLoadClientTriesNewServers(t *testing.T) {
	c := newSubsetClient(t, "roundrobin", 40, 10, 10)
	old, replaced := c.replaceAll()
	for _, n := range replaced {
		if !c.ladder.hasRoom() {
			break
		}
		_, ok := c.lease(n, 30)
		require.True(t, ok)
	}
	tried := map[int32]bool{}
	for beside := c.ladder.Held() - 10; beside > 0; beside-- {
		entry, ok := c.ladder.Acquire(c.now, c.rng)
		require.True(t, ok)
		_, server, _, _, _ := c.ladder.Slot(entry)
		require.Contains(t, replaced, int(server))
		require.False(t, tried[server], "one request tests a server")
		tried[server] = true
		c.ladder.Release(c.now, entry, Failure, c.rng)
		c.ladder.check(t)
	}
	require.NotEmpty(t, tried)
	entry, _ := c.ladder.Acquire(c.now, c.rng)
	_, server, _, _, _ := c.ladder.Slot(entry)
	require.Contains(t, old, int(server), "after the failures the lowest slot is first again")
}

// A new server is asked once the ladder has room.
func TestNewServerIsAskedOnceThereIsRoom(t *testing.T) {
	c := newSubsetClient(t, "roundrobin", 40, 10, 10)
	c.ladder = NewLadder(10, make([]Slot, 13), make([]Peer, 40))
	_, replaced := c.replaceAll()
	var seeker LeaseSeeker
	c.now += 2 * welcomeWithin
	asked := map[int]bool{}
	ask := func() (room bool) {
		peer, _, ok := seeker.NextRequest(c.now, &c.ladder, c.rng)
		if !ok {
			return false
		}
		asked[int(peer)] = true
		answer := Declined
		if _, ok = c.lease(int(peer), 30); ok {
			answer = Granted
		}
		seeker.Done(c.now, &c.ladder, peer, answer, c.rng)
		return ok
	}
	for ask() {
	}
	require.False(t, c.ladder.hasRoom())
	require.Len(t, asked, 3)
	require.Greater(t, seeker.Wake(&c.ladder), c.now, "no request is due before there is room")
	for len(asked) < len(replaced) && c.now < 5e9 {
		for _, n := range replaced {
			if asked[n] {
				c.succeed(n)
			}
		}
		c.now = max(c.now, seeker.Wake(&c.ladder))
		ask()
	}
	require.Len(t, asked, len(replaced))
}

// A countingAlgorithm sums the numbers that it is asked for.
type countingAlgorithm struct {
	subset.Algorithm
	asked int
}

func (a *countingAlgorithm) Subset(dst []int, frontend, frontends, backends, k int) []int {
	a.asked += min(k, backends)
	return a.Algorithm.Subset(dst, frontend, frontends, backends, k)
}

// The work of Choose is linear in the highest number, also with few servers.
func TestChooseIsLinearInHighestNumber(t *testing.T) {
	rng := testseed.Rand(t)
	for _, name := range subset.Names() {
		for range 10 {
			numbers, size := 1+rng.IntN(5_000), 1+rng.IntN(50)
			servers := map[int]bool{numbers - 1: true}
			for range rng.IntN(200) {
				servers[rng.IntN(numbers)] = true
			}
			a := &countingAlgorithm{Algorithm: algorithm(t, name)}
			s := NewSubset(a, size, 0)
			s.level = rng.IntN(maxBorrowed + 1)
			own, borrowed := s.Choose(View{Numbers: numbers, Self: rng.IntN(1000), Exists: func(n int) bool { return servers[n] }})
			require.Len(t, own, min(size, len(servers)), name)
			require.Len(t, borrowed, min(size*(1+s.level), len(servers))-len(own), name)
			require.LessOrEqual(t, a.asked, 6*numbers, "%s: %d servers of %d numbers", name, len(servers), numbers)
		}
	}
}

func TestChoosingAllocatesNothing(t *testing.T) {
	for _, name := range []string{"rocksteadier", "ringsteady"} {
		s := NewSubset(algorithm(t, name), 100, 0)
		view := View{Numbers: 1_000_000, Self: 77, Exists: func(n int) bool { return n%5 > 0 }}
		require.Zero(t, testing.AllocsPerRun(100, func() { s.Choose(view) }), name)
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, holes := range []int{0, 50} {
		b.Run(fmt.Sprintf("holes=%d%%", holes), func(b *testing.B) {
			s := NewSubset(algorithm(b, "rocksteadier"), 100, 0)
			view := View{Numbers: 1_000_000, Exists: func(n int) bool { return n*37%100 >= holes }}
			b.ReportAllocs()
			for b.Loop() {
				view.Self = (view.Self + 1) % 10_000
				if own, _ := s.Choose(view); len(own) != 100 {
					b.Fatal(len(own))
				}
			}
		})
	}
}
