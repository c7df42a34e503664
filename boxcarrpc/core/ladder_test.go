package core

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// filled returns a fleet with one client, whose ladder is full and whose servers are
// trusted.
func filled(t *testing.T, servers, size int) (*fleet, *client) {
	rng := testseed.PCG(t)
	f := newFleet(t, servers, 1, size, rng)
	f.trust()
	f.settle(rng)
	f.checkBalanced(size)
	return f, f.all[0]
}

func TestAtNConcurrentRequestsTheNLowestSlotsAreBusy(t *testing.T) {
	f, c := filled(t, 5, 30)
	for n := 1; n <= 30; n++ {
		// Some requests before mix the order of idle times.
		for range n {
			entry, ok := c.ladder.Acquire(f.now, c.rng)
			require.True(t, ok)
			f.answer(c, entry)
		}
		var busy []int32
		for range n {
			entry, ok := c.ladder.Acquire(f.now, c.rng)
			require.True(t, ok)
			busy = append(busy, c.ladder.slots[entry].number)
		}
		var lowest []int32
		for _, h := range c.holds()[:n] {
			lowest = append(lowest, h[0])
		}
		slices.Sort(busy)
		require.Equal(t, lowest, busy)
		c.ladder.check(t)
		for i := range c.ladder.slots {
			if c.ladder.slots[i].state == slotBusy {
				f.answer(c, int32(i))
			}
		}
	}
}

func TestAmongEqualNumbersTheOneIdleLongestIsUsed(t *testing.T) {
	f, c := filled(t, 10, 10) // slot 0 on each
	var order []int32
	for range 30 {
		entry, ok := c.ladder.Acquire(f.now, c.rng)
		require.True(t, ok)
		order = append(order, c.ladder.slots[entry].peer)
		f.answer(c, entry)
	}
	require.Equal(t, order[:10], order[10:20])
	require.Equal(t, order[:10], order[20:])
	slices.Sort(order[:10])
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order[:10], "every server is used")
}

func TestAcquireFailsIfAllSlotsAreBusy(t *testing.T) {
	f, c := filled(t, 2, 4)
	for range 4 {
		_, ok := c.ladder.Acquire(f.now, c.rng)
		require.True(t, ok)
	}
	_, ok := c.ladder.Acquire(f.now, c.rng)
	require.False(t, ok)
	require.Equal(t, 4, c.ladder.Busy())
}

func TestARetryTakesTheNextBestSlotOfAServerNotTried(t *testing.T) {
	f, c := filled(t, 3, 6)
	l := &c.ladder
	first, _ := l.Acquire(f.now, c.rng)
	tried := []int32{l.slots[first].peer}
	second, ok, _ := l.AcquireOther(f.now, tried, c.rng)
	require.True(t, ok)
	require.NotContains(t, tried, l.slots[second].peer)
	require.Equal(t, int32(0), l.slots[second].number)
	tried = append(tried, l.slots[second].peer)
	third, ok, _ := l.AcquireOther(f.now, tried, c.rng)
	require.True(t, ok)
	require.NotContains(t, tried, l.slots[third].peer)
	_, ok, other := l.AcquireOther(f.now, tried, c.rng)
	require.True(t, ok)
	require.True(t, other, "the third server's other slot")
	_, ok, other = l.AcquireOther(f.now, tried, c.rng)
	require.False(t, ok)
	require.True(t, other, "its slots are busy: waiting helps")
	tried = append(tried, l.slots[third].peer)
	_, ok, other = l.AcquireOther(f.now, tried, c.rng)
	require.False(t, ok)
	require.False(t, other, "all servers were tried")
}

func TestAServerThatRefusedRanksLastForAWhile(t *testing.T) {
	f, c := filled(t, 2, 4)
	l := &c.ladder
	first, _ := l.Acquire(f.now, c.rng)
	bad := l.slots[first].peer
	l.Release(f.now, first, Refused, c.rng)
	l.check(t)
	var order []int32
	var taken []int32
	for range 4 {
		entry, ok := l.Acquire(f.now, c.rng)
		require.True(t, ok, "the slots are kept and used if there are no others")
		order = append(order, l.slots[entry].peer)
		taken = append(taken, entry)
	}
	require.Equal(t, []int32{1 - bad, 1 - bad, bad, bad}, order)
	for _, entry := range taken {
		l.Release(f.now, entry, Neutral, c.rng)
	}
	f.now += 2 * pauseBase
	for _, peer := range []int32{1 - bad, bad} {
		entry, _ := l.Acquire(f.now, c.rng)
		require.Equal(t, int32(0), l.slots[entry].number)
		require.Equal(t, peer, l.slots[entry].peer, "the pause is over")
	}
	l.check(t)
}

func TestPausesDoubleUntilASuccess(t *testing.T) {
	f, c := filled(t, 1, 1)
	l := &c.ladder
	refuse := func() int64 {
		entry, ok := l.Acquire(f.now, c.rng)
		require.True(t, ok)
		l.Release(f.now, entry, Refused, c.rng)
		pause := l.peers[0].pause.until - f.now
		f.now = l.peers[0].pause.until
		return pause
	}
	for base := int64(pauseBase); base < pauseLimit; base *= 2 {
		pause := refuse()
		require.True(t, pause >= base/2 && pause <= base*3/2, "%d after %d", pause, base)
	}
	require.LessOrEqual(t, refuse(), int64(pauseLimit)*3/2)
	entry, _ := l.Acquire(f.now, c.rng)
	f.answer(c, entry)
	require.LessOrEqual(t, refuse(), int64(pauseBase)*3/2)
}

func TestAnUntrustedServerHasOneRequestAtATimeIfThereAreOthers(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 2, 1, 4, rng)
	c := f.all[0]
	l := &c.ladder
	for s := range int32(2) {
		f.give(c, s*10, s)
		f.give(c, s*10+1, s)
	}
	l.RecordOutcome(0, 1, Success, rng)
	first, _ := l.Acquire(f.now, rng)
	require.Equal(t, int32(0), l.slots[first].number)
	second, _ := l.Acquire(f.now, rng)
	require.Equal(t, int32(10), l.slots[second].number, "slot 1 is not used until slot 0's request ends")
	f.answer(c, first)
	l.check(t)
	for _, want := range []int32{0, 1, 11} {
		entry, _ := l.Acquire(f.now, rng)
		require.Equal(t, want, l.slots[entry].number)
	}
}

func TestABusySlotThatIsReplacedLeavesWithItsRequest(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 2, 1, 1, rng)
	c := f.all[0]
	l := &c.ladder
	f.trust()
	f.give(c, 3, 0)
	entry, _ := l.Acquire(f.now, rng)
	_, victim, gone, ok := l.Grant(1, 2)
	require.True(t, ok)
	require.Equal(t, entry, victim)
	require.False(t, gone)
	_, _, _, ok = l.Grant(1, 1)
	require.False(t, ok, "there is no room until the replaced slot's request ends")
	l.check(t)
	require.True(t, l.Release(f.now, entry, Success, rng))
	_, _, gone, ok = l.Grant(1, 1)
	require.True(t, ok)
	require.True(t, gone)
	l.check(t)
}

func TestALostSlotOfABusyRequestIsGoneAtOnce(t *testing.T) {
	f, c := filled(t, 2, 4)
	for range 3 {
		c.ladder.Acquire(f.now, c.rng)
	}
	f.crash(0)
	c.ladder.check(t)
	require.Equal(t, 2, c.ladder.Held())
	require.False(t, c.ladder.Full())
	require.Equal(t, 1, c.ladder.Live())
	_, ok := c.ladder.Bid(0)
	require.False(t, ok, "no new lease in quarantine")
}

func TestASuspectServerRanksLast(t *testing.T) {
	f, c := filled(t, 2, 4)
	c.ladder.SetSuspect(0, true)
	for range 2 {
		entry, _ := c.ladder.Acquire(f.now, c.rng)
		require.Equal(t, int32(1), c.ladder.slots[entry].peer)
	}
	c.ladder.SetSuspect(0, false)
	c.ladder.check(t)
}

// A slot of another connection replaces one of the same server, at once or when it is released.
func TestMoveReplacesASlotOfTheSameServer(t *testing.T) {
	f, c := filled(t, 2, 8)
	move := func(victim int32, want bool) (gone bool) {
		t.Helper()
		peer := c.ladder.slots[victim].peer
		number, ok := f.boards[peer].Lease(NoSlot)
		require.True(t, ok)
		old := c.ladder.slots[victim].number
		entry, gone, ok := c.ladder.Move(victim, number)
		require.Equal(t, want, ok)
		if !ok {
			require.True(t, f.boards[peer].Release(number))
			return false
		}
		f.owner[peer][number] = c.id
		require.Equal(t, [2]int32{peer, number}, [2]int32{c.ladder.slots[entry].peer, c.ladder.slots[entry].number})
		if gone {
			f.giveBack(peer, old)
		}
		require.Equal(t, 8, c.ladder.Held())
		c.ladder.check(t)
		return gone
	}
	for victim := range int32(8) {
		require.True(t, move(victim, true), "it is free")
	}
	busy, ok := c.ladder.Acquire(f.now, c.rng)
	require.True(t, ok)
	require.False(t, move(busy, true), "it is busy")
	move(busy, false)       // it leaves already
	move((busy+1)%8, false) // there is no room before it has left
	f.answer(c, busy)
	require.Equal(t, 8, c.ladder.Held())
	c.ladder.check(t)
	unused := int32(slices.IndexFunc(c.ladder.slots, func(s Slot) bool { return s.state == slotUnused }))
	_, _, ok = c.ladder.Move(unused, 100)
	require.False(t, ok)
	_, _, ok = c.ladder.Move((unused+1)%9, c.ladder.slots[(unused+1)%9].number)
	require.False(t, ok, "the ladder has this number")
}
