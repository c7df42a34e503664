package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

const testZones = 3

// zoneOf returns the zone of a client or a server.
func zoneOf(index int32) int32 { return index % testZones }

// inZones makes the clients prefer the servers of their zones.
func (f *fleet) inZones() {
	for _, c := range f.all {
		for s := range int32(len(f.boards)) {
			c.ladder.SetFar(s, zoneOf(s) != zoneOf(int32(c.id)))
		}
	}
}

// zoned returns a fleet of three zones whose ladders are full.
func zoned(t *testing.T, servers, clients, size int, rng *rand.PCG) *fleet {
	f := newFleet(t, servers, clients, size, rng)
	f.inZones()
	f.trust()
	f.settle(rng)
	f.check()
	return f
}

// checkSpare requires that the ladders have all spare slots and no other far ones.
func (f *fleet) checkSpare(size int) {
	f.t.Helper()
	f.check()
	for _, c := range f.all {
		require.Equal(f.t, size, c.ladder.Held())
		require.EqualValues(f.t, size/sparePart, c.ladder.farHeld, "client %d", c.id)
	}
}

// A health check of a far server is not a request that has left the zone.
func TestHealthChecksDoNotLeaveTheZone(t *testing.T) {
	rng := testseed.PCG(t)
	c := NewClient(1, make([]Slot, 2), make([]Peer, 1))
	c.CheckHealth(0)
	c.SetFar(0, true)
	c.Join(0, 0, rng)
	peer, _, ok := c.NextRequest(0, rng)
	require.True(t, ok)
	c.Grant(0, peer, 0, rng)
	entry, ok := c.Check(0, rng)
	require.True(t, ok)
	require.Zero(t, c.Left())
	c.Release(0, entry, Response{Outcome: Success, Lowest: NoSlot}, rng)
	c.Checked(0, peer, true, rng)
	_, ok = c.Acquire(0, nil, rng)
	require.True(t, ok)
	require.EqualValues(t, 1, c.Left())
}

// All requests but those that find no near slot stay in the zone.
func TestNearSlotsAreUsedFirst(t *testing.T) {
	rng := testseed.PCG(t)
	const size = 16
	f := zoned(t, 12, 9, size, rng)
	f.checkSpare(size)
	for _, c := range f.all {
		for n := range size {
			entry, ok := c.ladder.Acquire(f.now, c.rng)
			require.True(t, ok)
			require.Equal(t, n >= size-size/sparePart, c.ladder.isFar(entry), "slot %d of %d", n, size)
		}
		require.EqualValues(t, size/sparePart, c.ladder.Left())
		for i := range c.ladder.slots {
			if c.ladder.slots[i].state == slotBusy {
				f.answer(c, int32(i))
			}
		}
		for range 100 {
			entry, _ := c.ladder.Acquire(f.now, c.rng)
			f.answer(c, entry)
			c.ladder.ReportLoad(f.now, entry, 0)
		}
		require.EqualValues(t, size/sparePart, c.ladder.Left())
	}
}

// While a zone is down its clients fill their ladders on the others, and give these slots
// back when it returns. Every request finds a slot at once.
func TestLossOfAZone(t *testing.T) {
	rng := testseed.PCG(t)
	const size = 16
	f := zoned(t, 12, 9, size, rng)
	down := func(crash bool) {
		for s := range int32(len(f.boards)) {
			if zoneOf(s) != 0 {
				continue
			}
			if crash {
				f.crash(s)
			} else {
				f.recover(s)
			}
		}
	}
	down(true)
	for _, c := range f.all {
		for range size / sparePart {
			_, ok := c.ladder.Acquire(f.now, c.rng)
			require.True(t, ok, "the spare slots")
		}
		for i := range c.ladder.slots {
			if c.ladder.slots[i].state == slotBusy {
				f.answer(c, int32(i))
			}
		}
	}
	f.settle(rng)
	f.check()
	for _, c := range f.all {
		require.Equal(t, size, c.ladder.Held())
		if zoneOf(int32(c.id)) == 0 {
			require.EqualValues(t, size, c.ladder.farHeld)
		}
	}
	down(false)
	f.trust()
	f.settle(rng)
	f.checkSpare(size)
}

// A client whose zone has no server uses all, and one of a zone with few servers does not
// hold more than its spare slots elsewhere.
func TestZonesOfOtherSizes(t *testing.T) {
	rng := testseed.PCG(t)
	const size = 16
	f := newFleet(t, 8, 4, size, rng)
	for _, c := range f.all {
		for s := range int32(len(f.boards)) {
			c.ladder.SetFar(s, c.id == 0 || c.id == 1 && s > 0)
		}
	}
	f.trust()
	f.settle(rng)
	f.check()
	require.Equal(t, size, f.all[0].ladder.Held())
	for _, p := range f.all[0].ladder.peers[:8] {
		require.LessOrEqual(t, p.held, int32(2*size/8))
	}
	require.EqualValues(t, size/sparePart, f.all[1].ladder.farHeld)
}

// Servers change their zones, crash and return in any order.
func TestZonesChange(t *testing.T) {
	rng := testseed.PCG(t)
	const size, servers, clients = 12, 9, 6
	for range 20 {
		f := newFleet(t, servers, clients, size, rng)
		f.inZones()
		f.trust()
		for range 60 {
			c := f.all[uniform(rng, clients)]
			server := int32(uniform(rng, servers))
			switch uniform(rng, 12) {
			case 0:
				c.ladder.SetFar(server, uniform(rng, 2) == 0)
			case 1:
				f.crash(server)
			case 2:
				f.recover(server)
			case 3:
				c.ladder.SetWeight(server, float64(1+uniform(rng, 3)))
			default:
				for range uniform(rng, 40) {
					f.turn(c)
				}
				if entry, ok := c.ladder.Acquire(f.now, c.rng); ok {
					f.answer(c, entry)
					c.ladder.ReportLoad(f.now, entry, int32(uniform(rng, 4)))
				}
			}
			c.ladder.check(t)
		}
		for s := range int32(len(f.boards)) {
			f.recover(s)
		}
		f.inZones()
		f.trust()
		f.settle(rng)
		f.checkSpare(size)
	}
}

// spilled returns the share of a client's requests that leave the zone while the servers of
// the zones report the given loads. A quarter of the reports is 0.
func spilled(t *testing.T, near, far int32) float64 {
	rng := testseed.PCG(t)
	f := zoned(t, 12, 1, 16, rng)
	c := f.all[0]
	const requests = 20_000
	for i := range requests {
		f.now += 1e6
		entry, ok := c.ladder.Acquire(f.now, c.rng)
		require.True(t, ok)
		load := near
		if c.ladder.isFar(entry) {
			load = far
		}
		if uniform(rng, 4) == 0 {
			load = 0
		}
		f.answer(c, entry)
		c.ladder.ReportLoad(f.now, entry, load)
		if i == requests/2 {
			c.ladder.left = 0 // the averages have settled
		}
	}
	c.ladder.check(t)
	return float64(c.ladder.Left()) / (requests / 2)
}

func TestRequestsLeaveALoadedZone(t *testing.T) {
	for _, x := range []struct {
		near, far int32
		low, high float64
	}{
		{0, 0, 0, 0},              // no load
		{0, 5, 0, 0},              // the zone has none
		{4, 4, 0.001, 0.03},       // even: one in exploreEvery
		{4, 8, 0.001, 0.03},       // the others have more
		{8, 4, 0.25, 0.5},         // the zone has more
		{200, 100, 0.25, 0.5},     // as above
		{1000, 1000, 0.001, 0.03}, // overload everywhere
	} {
		share := spilled(t, x.near, x.far)
		t.Logf("%+v: %.4f", x, share)
		require.GreaterOrEqual(t, share, x.low, "%+v", x)
		require.LessOrEqual(t, share, x.high, "%+v", x)
	}
}

// connections returns the number of clients that use each server, of the clients of a zone
// numbered from 0. in has the zones of the servers.
func connections(t *testing.T, clients, size int, zone int, in []int) (near, far []int) {
	near, far = make([]int, len(in)), make([]int, len(in))
	var numbers []int
	for number, z := range in {
		if z == zone {
			numbers = append(numbers, number)
		}
	}
	for self := range clients {
		s := NewSubset(algorithm(t, "rocksteadier"), size, 0)
		own, _ := s.Choose(View{Numbers: len(in), Self: self, Exists: everywhere, Near: func(number int) bool { return in[number] == zone }, Stride: Stride(numbers)})
		for _, number := range own {
			if in[number] == zone {
				near[number]++
			} else {
				far[number]++
			}
		}
	}
	return near, far
}

// utilization is the mean number of connections of the servers of a zone, or of the others,
// divided by the largest.
func utilization(connections, in []int, zone int, inside bool) float64 {
	sum, most, servers := 0, 0, 0
	for number, n := range connections {
		if (in[number] == zone) == inside {
			servers++
			sum += n
			most = max(most, n)
		}
	}
	return float64(sum) / float64(servers) / float64(most)
}

// Within a zone whose numbers are dense or in turn with those of the others, subsets are
// balanced as those of rocksteadier in a fleet of one zone.
func TestSubsetsOfAZoneAreBalanced(t *testing.T) {
	const size = 20
	for _, x := range []struct {
		name   string
		zoneOf func(number, servers int) int
		least  float64 // of the utilization in a fleet of one zone
	}{
		{"in turn", func(number, _ int) int { return number % 3 }, 1},
		{"blocks", func(number, servers int) int { return number * 3 / servers }, 0.97},
		{"random", func(number, _ int) int { return int(hashed(number) % 3) }, 0.85},
	} {
		var near, far, plain, runs float64
		for _, servers := range []int{180, 240, 300, 450} {
			for _, clients := range []int{servers / 6, servers / 3, servers} {
				in := make([]int, servers)
				for number := range in {
					in[number] = x.zoneOf(number, servers)
				}
				one := make([]int, servers/3)
				alone, _ := connections(t, clients, size, 0, one)
				plain += utilization(alone, one, 0, true)
				for zone := range 3 {
					n, f := connections(t, clients, size, zone, in)
					near += utilization(n, in, zone, true) / 3
					far += utilization(f, in, zone, false) / 3
				}
				runs++
			}
		}
		t.Logf("%s: utilization %.3f in the zone, %.3f of spare servers; %.3f of a fleet of one zone", x.name, near/runs, far/runs, plain/runs)
		require.GreaterOrEqual(t, near, x.least*plain-1e-9, x.name)
	}
}

// A subset of a zone has size servers of the zone and a quarter as many of others. Others make
// up for missing servers of the zone, and a server that leaves changes one choice.
func TestSubsetOfAZone(t *testing.T) {
	const numbers, size = 90, 8
	gone := -1
	view := View{
		Numbers: numbers, Self: 5, Exists: func(number int) bool { return number != gone },
		Near: func(number int) bool { return number%3 == 1 }, Stride: 3,
	}
	s := NewSubset(algorithm(t, "rocksteadier"), size, 0)
	own, borrowed := s.chosenOf(view)
	require.Empty(t, borrowed)
	require.Len(t, distinct(own), size+size/sparePart)
	for i, number := range own {
		require.Equal(t, i < size, view.Near(number), "%v", own)
	}
	gone = own[3]
	fewer, _ := s.chosenOf(view)
	require.Equal(t, own[:3], fewer[:3])
	require.Equal(t, own[4:size], fewer[3:size-1])
	gone = -1

	view.Near, view.Stride = func(number int) bool { return number == 4 || number == 7 }, 3
	few, _ := s.chosenOf(view)
	require.Len(t, distinct(few), size)
	require.ElementsMatch(t, []int{4, 7}, few[:2])
	view.Near, view.Stride = func(int) bool { return false }, 1
	none, _ := s.chosenOf(view)
	require.Len(t, distinct(none), size)

	require.Equal(t, 1, Stride(nil))
	require.Equal(t, 1, Stride([]int{7}))
	require.Equal(t, 3, Stride([]int{10, 1, 4}))
}

// newZoneClient returns a client with a subset of four servers of its zone, and a spare one.
func newZoneClient(t *testing.T) (c *subsetClient, own []int) {
	c = newSubsetClient(t, "rocksteadier", 90, 4, 8)
	c.view.Near, c.view.Stride = func(number int) bool { return number%3 == 1 }, 3
	for n := range c.view.Numbers {
		c.ladder.SetFar(int32(n), !c.view.Near(n))
	}
	own, _ = c.adopt()
	require.Len(t, own, 5)
	return c, own
}

// If the servers of the zone are dead, more are borrowed although the spare ones answer.
func TestDeadZoneBorrows(t *testing.T) {
	c, own := newZoneClient(t)
	spare := own[4]
	for _, n := range own {
		_, ok := c.lease(n, 0)
		require.True(t, ok)
		c.succeed(n)
	}
	for _, n := range own[:4] {
		require.False(t, c.subset.UpdateBorrowing(&c.ladder))
		c.crash(n)
	}
	require.Equal(t, 1, c.holds(spare))
	require.True(t, c.subset.UpdateBorrowing(&c.ladder))
	again, borrowed := c.adopt()
	require.Equal(t, own, again)
	require.Len(t, borrowed, 4)
	for _, n := range borrowed {
		require.False(t, c.view.Near(n), "the zone may be lost")
	}
	c.recover()
	for i, n := range own[:2] {
		require.False(t, c.subset.UpdateBorrowing(&c.ladder))
		_, ok := c.lease(n, 1)
		require.True(t, ok)
		c.succeed(n)
		require.Equal(t, i == 1, c.subset.UpdateBorrowing(&c.ladder))
	}
	_, borrowed = c.adopt()
	require.Empty(t, borrowed)
}

// A zone half of whose servers are failing is not lost: the other half may be trusted, which ends
// borrowing. If both held, a pool would borrow and give back for ever.
func TestHalfOfAZoneFailing(t *testing.T) {
	c, own := newZoneClient(t)
	_, ok := c.lease(own[4], 0) // of another zone
	require.True(t, ok)
	for i, n := range own[:4] {
		c.succeed(n)
		if i < 2 {
			c.crash(n)
		}
		require.False(t, c.subset.UpdateBorrowing(&c.ladder))
	}
	c.crash(own[2])
	require.True(t, c.subset.UpdateBorrowing(&c.ladder))
	c.adopt()
	require.False(t, c.subset.UpdateBorrowing(&c.ladder))
}

func hashed(number int) uint64 { return rand.New(rand.NewPCG(uint64(number), 7)).Uint64() }
