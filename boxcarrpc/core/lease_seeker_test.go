package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestPoolsFillAndServersBalance(t *testing.T) {
	rng := testseed.PCG(t)
	for _, c := range []struct{ servers, clients, size int }{
		{1, 1, 1}, {1, 5, 3}, {2, 3, 2}, {3, 4, 6}, {5, 12, 10}, {10, 7, 20}, {20, 30, 4},
	} {
		f := newFleet(t, c.servers, c.clients, c.size, rng)
		f.trust()
		f.settle(rng)
		f.checkBalanced(c.size)
	}
}

// Servers and clients come and go at random, requests start and end. The records of all
// of them agree after every step.
func TestNoSlotIsHeldTwice(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 4, 6, 8, rng)
	busy := map[*client][]int32{}
	for step := range 30_000 {
		c := f.all[uniform(rng, uint64(len(f.all)))]
		switch what := uniform(rng, 1000); {
		case what < 600:
			f.turn(c)
		case what < 800:
			if entry, ok := c.ladder.Acquire(f.now, c.rng); ok {
				busy[c] = append(busy[c], entry)
			}
		case what < 980:
			if n := len(busy[c]); n > 0 {
				f.answer(c, busy[c][n-1])
				busy[c] = busy[c][:n-1]
			}
		case what < 985 && len(f.all) > 2:
			f.vanish(c)
			delete(busy, c)
		case what < 990:
			f.addClient(1+int(uniform(rng, 8)), rng)
		case what < 993:
			server := int32(uniform(rng, uint64(len(f.boards))))
			if f.down[server] {
				f.recover(server)
				break
			}
			f.crash(server)
			clear(busy) // end all requests, not only the lost ones
			for _, c := range f.all {
				for i := range c.ladder.slots {
					if c.ladder.slots[i].state == slotBusy {
						f.answer(c, int32(i))
					}
				}
			}
		case what < 995 && len(f.boards) < fleetServers:
			f.addServer()
		case what < 997:
			c.ladder.Leave(int32(uniform(rng, uint64(len(f.boards)))))
		default:
			c.ladder.Join(f.now, int32(uniform(rng, uint64(len(f.boards)))), c.rng)
		}
		if step%50 == 0 {
			f.check()
		}
	}
	f.check()
}

func TestChurnEndsAndAFlatLadderAsksOnceAMinute(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 10, 20, 20, rng)
	f.trust()
	f.settle(rng)
	for _, c := range f.all {
		swaps := c.swaps
		for range 20 { // until the longest pause
			f.turn(c)
		}
		start := f.now
		for range 100 {
			f.turn(c)
		}
		require.Equal(t, swaps, c.swaps)
		require.InDelta(t, 100*idleLimit, f.now-start, 20*idleLimit, "a hundred lease requests without calls take 25 hours")

		require.True(t, c.seeker.Used(f.now, rng) || c.seeker.next <= f.now+restLimit*3/2)
		require.LessOrEqual(t, c.seeker.Wake(&c.ladder), f.now+2*restLimit, "the first call of an idle client")
		require.False(t, c.seeker.Used(f.now, rng))
		f.turn(c)
		start = f.now
		for range 100 {
			c.seeker.Used(f.now, rng)
			f.turn(c)
		}
		require.Equal(t, swaps, c.swaps)
		require.InDelta(t, 100*restLimit, f.now-start, 20*restLimit, "a hundred lease requests take a hundred minutes")
	}
}

// One of many servers has a lower slot. If each request picked from all servers, some
// ladders would ask the others a dozen times while their requests become rarer.
func TestAServerWithABetterSlotIsFoundWithinARound(t *testing.T) {
	rng := testseed.PCG(t)
	const servers = 30
	for range 50 {
		f := newFleet(t, servers, 1, 4, rng)
		f.trust()
		for s := range f.boards {
			f.boards[s].Lease(NoSlot)
		}
		c := f.all[0]
		for !c.ladder.Full() {
			f.turn(c)
		}
		for range 5 * servers { // until the pauses are long
			f.turn(c)
		}
		for s := range f.boards {
			if _, held := f.owner[s][1]; !held {
				require.True(t, f.boards[s].Release(0))
				break
			}
		}
		swaps, questions := c.swaps, 0
		for ; c.swaps == swaps; questions++ {
			f.turn(c)
		}
		require.LessOrEqual(t, questions, 2*servers, "the rest of a round, and the next round")
	}
}

// A ladder filled by uniform picks holds no slot of some servers and three of others. If
// all servers were asked alike, a server could get no request for minutes. A full ladder
// asks the servers without a slot first.
func TestNoServerStaysUnusedWhileOthersHaveSeveralSlots(t *testing.T) {
	rng := testseed.PCG(t)
	for range 300 {
		servers := 2 + int(uniform(rng, 40))
		f := newFleet(t, servers, 1, servers+int(uniform(rng, uint64(servers))), rng)
		f.trust()
		c := f.all[0]
		for !c.ladder.Full() {
			f.turn(c)
		}
		unused := func() (n int) {
			for s := range servers {
				if c.ladder.Peer(int32(s)).Held == 0 {
					n++
				}
			}
			return n
		}
		full := f.now
		for left := unused(); left > 0; left-- {
			require.Equal(t, left, unused())
			f.turn(c)
		}
		require.Zero(t, unused())
		require.LessOrEqual(t, f.now-full, int64(servers*2*swapRest))
	}
}

// A server that leases one number many times would attract all requests.
func TestANumberIsTakenOncePerServer(t *testing.T) {
	rng := testseed.PCG(t)
	l := NewLadder(8, make([]Slot, 9), make([]Peer, 2))
	l.Join(0, 0, rng)
	l.Join(0, 1, rng)
	grant := func(peer, number int32) bool {
		_, _, _, ok := l.Grant(peer, number)
		return ok
	}
	require.True(t, grant(0, 0))
	require.False(t, grant(0, 0))
	require.True(t, grant(1, 0))
	require.True(t, grant(0, 1))
	entry, ok := l.Acquire(0, rng)
	require.True(t, ok)
	require.False(t, l.Retire(entry), "it is busy")
	number, peer, _, _, _ := l.Slot(entry)
	require.False(t, grant(peer, number), "the server has not got it back yet")
	require.True(t, l.Release(0, entry, Success, rng))
	require.True(t, grant(peer, number))
	require.Equal(t, 3, l.Held())
}

func TestLeaseSeekerPicksUniformly(t *testing.T) {
	rng := testseed.PCG(t)
	l := NewLadder(1, make([]Slot, 2), make([]Peer, 10))
	for peer := range int32(10) {
		l.Join(0, peer, rng)
	}
	var r LeaseSeeker
	count := make([]float64, 10)
	for range 20_000 {
		peer, _, ok := r.NextRequest(0, &l, rng)
		require.True(t, ok)
		count[peer]++
		r.Done(0, &l, peer, Failed, rng)
	}
	for peer, n := range count {
		require.InDelta(t, 2000, n, 300, "server %d", peer)
	}
}

func TestANewServerIsAskedFirstAfterJitter(t *testing.T) {
	rng := testseed.PCG(t)
	for range 20 {
		f := newFleet(t, 3, 1, 2, rng)
		c := f.all[0]
		f.trust()
		f.give(c, 5, 0)
		f.give(c, 6, 1)
		fresh := f.addServer()
		start := f.now
		c.seeker.next = never
		wake := c.seeker.Wake(&c.ladder)
		require.LessOrEqual(t, wake, start+welcomeWithin)
		peer, below, ok := c.seeker.NextRequest(wake, &c.ladder, c.rng)
		require.True(t, ok)
		require.Equal(t, fresh, peer)
		require.Equal(t, int32(6), below)
	}
}

func TestAReturnedServerIsAskedFirst(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 5, 1, 2, rng)
	c := f.all[0]
	f.trust()
	f.give(c, 5, 0)
	f.give(c, 6, 1)
	c.ladder.Quarantine(f.now, 3, rng)
	c.seeker.next = never
	f.now = c.seeker.Wake(&c.ladder) // end of the quarantine
	_, _, ok := c.seeker.NextRequest(f.now, &c.ladder, rng)
	require.False(t, ok)
	f.now = c.seeker.Wake(&c.ladder) // end of the jitter
	peer, _, ok := c.seeker.NextRequest(f.now, &c.ladder, rng)
	require.True(t, ok)
	require.Equal(t, int32(3), peer)
}

func TestNoServerGetsMoreThanTwiceItsShare(t *testing.T) {
	rng := testseed.PCG(t)
	for _, c := range []struct{ size, servers, limit int }{{20, 10, 4}, {10, 10, 2}, {3, 10, 2}, {64, 2, 64}, {7, 3, 4}} {
		f := newFleet(t, c.servers, 1, c.size, rng)
		f.trust()
		// All but one server offer only high slots.
		for s := 1; s < c.servers; s++ {
			for range 1000 {
				f.boards[s].Lease(NoSlot)
			}
		}
		for range 2000 {
			f.turn(f.all[0])
			require.LessOrEqual(t, int(f.all[0].ladder.peers[0].held), c.limit)
		}
		require.Equal(t, min(c.limit, c.size), int(f.all[0].ladder.peers[0].held))
		require.Equal(t, c.size, f.all[0].ladder.Held())
	}
}

// A server that fails every request always has its lowest slots free. A client that
// holds slots of healthy servers replaces only one of them.
func TestABlackHoleGetsOneSlotToProveItself(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 4, 1, 8, rng)
	c := f.all[0]
	f.trust()
	for s := range f.boards {
		for range 10 {
			f.boards[s].Lease(NoSlot)
		}
	}
	f.settle(rng)
	hole := f.addServer()
	for range 500 {
		f.turn(c)
		require.LessOrEqual(t, c.ladder.peers[hole].held, int32(1))
	}
	require.Equal(t, int32(1), c.ladder.peers[hole].held)
	entry, ok := c.ladder.Acquire(f.now, rng)
	require.True(t, ok)
	require.Equal(t, hole, c.ladder.slots[entry].peer, "its slot is the lowest and gets one request")
	f.answer(c, entry)
	f.settle(rng)
	require.Greater(t, c.ladder.peers[hole].held, int32(1), "it gets its share after an answer")
}

func TestASlotOfAServerThatLeftGoesFirst(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 3, 1, 3, rng)
	c := f.all[0]
	f.trust()
	for s := range int32(3) {
		f.give(c, s, s)
	}
	c.ladder.Leave(0)
	require.Equal(t, 3, c.ladder.Held(), "its slots stay until others replace them")
	f.settle(rng)
	require.Zero(t, c.ladder.peers[0].held)
	require.Equal(t, slots{{0, 1}, {0, 2}, {1, 1}}, c.holds()[:3:3])
}

func TestAHintIsFollowedSoon(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 50, 1, 2, rng)
	c := f.all[0]
	f.trust()
	f.give(c, 7, 0)
	f.give(c, 9, 1)
	c.seeker.next = never
	require.False(t, c.seeker.Hint(f.now, &c.ladder, 0, 9, rng))
	require.Equal(t, int64(never), c.seeker.Wake(&c.ladder), "9 is not below 9")
	require.True(t, c.seeker.Hint(f.now, &c.ladder, 0, 8, rng))
	wake := c.seeker.Wake(&c.ladder)
	require.LessOrEqual(t, wake, f.now+hintWithin)
	peer, below, ok := c.seeker.NextRequest(wake, &c.ladder, rng)
	require.True(t, ok)
	require.Equal(t, [2]int32{0, 9}, [2]int32{peer, below})
}

// The server of a hint has a lower slot. Whether a new server has one is unknown.
func TestAHintIsFollowedBeforeANewServerIsAsked(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 3, 1, 2, rng)
	c := f.all[0]
	f.trust()
	f.give(c, 7, 0)
	f.give(c, 9, 1)
	fresh := f.addServer()
	require.True(t, c.seeker.Hint(f.now, &c.ladder, 0, 8, rng))
	f.now += 2 * welcomeWithin
	for _, want := range []int32{0, fresh} {
		peer, _, ok := c.seeker.NextRequest(f.now, &c.ladder, rng)
		require.True(t, ok)
		require.Equal(t, want, peer)
		c.seeker.Done(f.now, &c.ladder, peer, Declined, rng)
	}
}

// Slots are lost during a lease request for a lower one. A refusal of this request must
// not delay the requests for any slot.
func TestDeclinedSwapDoesNotDelayFilling(t *testing.T) {
	f, c := filled(t, 2, 4)
	for s := range f.boards {
		f.boards[s].Lease(NoSlot) // no lower slot is left
	}
	f.now = max(f.now, c.seeker.Wake(&c.ladder)) + restLimit*2
	peer, below, ok := c.seeker.NextRequest(f.now, &c.ladder, c.rng)
	require.True(t, ok)
	require.NotEqual(t, NoSlot, below)
	f.crash(1 - peer)
	c.seeker.Done(f.now, &c.ladder, peer, Declined, c.rng)
	require.True(t, c.seeker.Filling(&c.ladder))
	for range 2 {
		again, below, ok := c.seeker.NextRequest(f.now, &c.ladder, c.rng)
		require.True(t, ok)
		require.Equal(t, peer, again)
		require.Equal(t, NoSlot, below)
		number, _ := f.boards[peer].Lease(below)
		f.owner[peer][number] = c.id
		_, _, _, ok = c.ladder.Grant(peer, number)
		require.True(t, ok)
		c.seeker.Done(f.now, &c.ladder, peer, Granted, c.rng)
	}
	require.True(t, c.ladder.Full())
}

// A full server does not delay lease requests to others.
func TestFullServerDoesNotDelayFilling(t *testing.T) {
	rng := testseed.PCG(t)
	for range 50 {
		f := newFleet(t, 3, 1, 6, rng)
		f.boards[1] = NewBoard(nil, 0)
		c := f.all[0]
		for !c.ladder.Full() { // two of three servers have free slots
			f.turn(c)
			require.Less(t, f.now, int64(20*restBase))
		}
	}
}

// While no server has a free slot, one is asked after each pause.
func TestLeaseRequestsToFullServersArePausedOnce(t *testing.T) {
	rng := testseed.PCG(t)
	for _, servers := range []int{1, 2, 5} {
		f := newFleet(t, servers, 1, 4, rng)
		c := f.all[0]
		var last int64
		for f.now < 60e9 {
			f.now = max(f.now, c.seeker.Wake(&c.ladder))
			peer, _, ok := c.seeker.NextRequest(f.now, &c.ladder, rng)
			if !ok {
				continue
			}
			require.LessOrEqual(t, f.now-last, int64(fillLimit*3/2), "%d servers", servers)
			last = f.now
			c.seeker.Done(f.now, &c.ladder, peer, Declined, rng)
		}
	}
}

func TestLeaseSeekerNeverSpins(t *testing.T) {
	rng := testseed.PCG(t)
	for _, servers := range []int{0, 1, 3} {
		f := newFleet(t, servers, 1, 4, rng)
		c := f.all[0]
		for s := range f.down {
			f.down[s] = true
		}
		turns := 0
		for f.now < 60e9 {
			before := f.now
			f.turn(c)
			if f.now == before {
				turns++
			} else {
				turns = 0
			}
			require.Less(t, turns, 20)
		}
	}
}

func TestUniformAndJitterStayWithinBounds(t *testing.T) {
	rng := rand.NewPCG(1, 2)
	for n := uint64(1); n < 50; n++ {
		seen := map[uint64]bool{}
		for range 2000 {
			x := uniform(rng, n)
			require.Less(t, x, n)
			seen[x] = true
		}
		require.Len(t, seen, int(n))
	}
	for range 1000 {
		j := jitter(rng, 1000)
		require.True(t, j >= 500 && j <= 1500)
	}
	require.Equal(t, int64(800), doubled(100, 1000, 3))
	require.Equal(t, int64(1000), doubled(100, 1000, 4))
	require.Equal(t, int64(1000), doubled(100, 1000, 255))
}
