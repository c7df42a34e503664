package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// The figures of the Boxcar article. The article numbers clients and servers from 1,
// these tests from 0. The captions of figures 4 and 8 are wrong about client 3: it holds
// slot 2 on server 2.

type slots = [][2]int32 // {number, server}

func TestFigure1EachPoolContainsTheLowestSlotAvailable(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 1, 1, 1, rng)
	f.turn(f.all[0])
	require.Equal(t, slots{{0, 0}}, f.all[0].holds())
	f.check()
}

func TestFigure2And3LowSlotsAreReclaimedAndAllocated(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 2, 2, 2, rng)
	one, two := f.all[0], f.all[1]
	for server := range int32(2) {
		f.give(one, 0, server)
		f.give(two, 1, server)
	}
	f.vanish(one)
	f.settle(rng)
	require.Equal(t, slots{{0, 0}, {0, 1}}, two.holds())
	require.Equal(t, 2, two.swaps)
	f.check()
}

// figure4 returns the state of figure 4: three clients on two servers.
func figure4(t *testing.T) (f *fleet, one, two, three *client) {
	f = newFleet(t, 2, 3, 2, testseed.PCG(t))
	one, two, three = f.all[0], f.all[1], f.all[2]
	f.give(one, 0, 0)
	f.give(one, 0, 1)
	f.give(two, 2, 0)
	f.give(two, 1, 1)
	f.give(three, 1, 0)
	f.give(three, 2, 1)
	f.trust()
	return f, one, two, three
}

// trust records a successful request of each client on each server.
func (f *fleet) trust() {
	for _, c := range f.all {
		for i := range int32(len(f.boards)) {
			c.ladder.RecordOutcome(f.now, i, Success, c.rng)
		}
	}
}

func TestFigure4ThreeClientsSeekTheBestSlotsOnTwoServers(t *testing.T) {
	rng := testseed.PCG(t)
	f, _, _, _ := figure4(t)
	f.settle(rng)
	for _, c := range f.all {
		require.Zero(t, c.swaps, "the figure's state is stable")
	}
	f.check()
}

// figure6 returns the state of figure 6: server 2 of figure 4 was lost, and clients 2, 3
// and 1 have leased other slots, in this order.
func figure6(t *testing.T) (f *fleet, one, two, three *client) {
	f, one, two, three = figure4(t)
	f.crash(1)
	for _, c := range []*client{two, three, one} {
		f.turn(c)
	}
	return f, one, two, three
}

func TestFigure5And6FollowingServerLossClientsFindTheBestSlots(t *testing.T) {
	f, one, two, three := figure6(t)
	require.Equal(t, slots{{0, 0}, {5, 0}}, one.holds())
	require.Equal(t, slots{{2, 0}, {3, 0}}, two.holds())
	require.Equal(t, slots{{1, 0}, {4, 0}}, three.holds())
	f.check()
}

func TestFigure7And8ClientsConnectToTheBestSlotsAvailable(t *testing.T) {
	f, one, two, three := figure6(t)
	f.recover(1)
	for _, c := range []*client{one, two, three} {
		f.turn(c)
	}
	require.Equal(t, slots{{0, 0}, {0, 1}}, one.holds())
	require.Equal(t, slots{{1, 1}, {2, 0}}, two.holds())
	require.Equal(t, slots{{1, 0}, {2, 1}}, three.holds())
	f.check()
}

// In a random order of lease requests the loss and return of a server lead to an
// equally good allocation.
func TestFigures5To8InRandomOrder(t *testing.T) {
	rng := testseed.PCG(t)
	for range 50 {
		f, _, _, _ := figure4(t)
		f.crash(1)
		f.settle(rng)
		require.Equal(t, 6, f.boards[0].Taken())
		f.recover(1)
		f.settle(rng)
		f.checkBalanced(2)
	}
}

// checkBalanced requires that every ladder is full, that the slots of each server are 0
// to n-1, and that n differs by at most one between servers, unless the client that
// could balance them is at its limit for the emptier server.
func (f *fleet) checkBalanced(size int) {
	f.check()
	for s := range f.boards {
		n := int32(f.boards[s].Taken())
		require.Equal(f.t, n, f.boards[s].LowestFree(), "the slots of server %d have a gap", s)
		for other := range f.boards {
			if int32(f.boards[other].Taken()) < n-1 {
				c := f.client(f.owner[s][n-1])
				require.GreaterOrEqual(f.t, c.ladder.peers[other].held, c.ladder.laneCap(&c.ladder.peers[other]),
					"server %d has %d slots, server %d %d", s, n, other, f.boards[other].Taken())
			}
		}
	}
	for _, c := range f.all {
		require.Equal(f.t, size, c.ladder.Held())
	}
}
