package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// heldOf is how many slots a client has of each server.
func (c *client) heldOf(servers int) []int32 {
	var list []int32
	for s := range servers {
		list = append(list, c.ladder.peers[s].held)
	}
	return list
}

func TestAnEvenLadderHasSlotsOfAllServers(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 4, 2, 10, rng)
	first, second := f.all[0], f.all[1]
	second.ladder.SpreadEvenly()
	even := func(want ...int32) {
		t.Helper()
		f.settle(rng)
		f.check()
		require.ElementsMatch(t, want, second.heldOf(len(f.boards)))
	}
	f.trust()
	even(3, 3, 2, 2)
	f.crash(1)
	even(4, 3, 3, 0)
	f.recover(1)
	even(3, 3, 2, 2)
	f.addServer()
	even(2, 2, 2, 2, 2)
	second.ladder.Leave(2)
	even(3, 3, 2, 2, 0)
	f.vanish(first) // lower numbers are free now; they are nothing to it
	before := second.holds()
	even(3, 3, 2, 2, 0)
	require.Equal(t, before, second.holds())
}

func TestASlotOfAGivenServer(t *testing.T) {
	f, c := filled(t, 3, 6)
	l := &c.ladder
	for server := range int32(3) {
		for n := l.peers[server].held; n > 0; n-- {
			entry, ok := l.AcquireOf(f.now, server, c.rng)
			require.True(t, ok)
			require.Equal(t, server, l.slots[entry].peer)
			l.check(t)
		}
		_, ok := l.AcquireOf(f.now, server, c.rng)
		require.False(t, ok, "they are all busy")
	}
}
