package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// A set had many servers and has few. No step examines an index that is not in use: the
// test takes the memory of these away.
func TestStepsDoNotExamineForgottenServers(t *testing.T) {
	rng := testseed.PCG(t)
	const ever, servers, size = 10_000, 8, 16
	c := NewClient(size, make([]Slot, size+2), make([]Peer, ever))
	c.CheckHealth(second)
	for peer := range int32(ever) {
		c.Join(0, peer, rng)
		c.Quarantine(0, peer, rng)
	}
	for peer := int32(servers); peer < ever; peer++ {
		c.Leave(peer)
		c.Forget(peer)
	}
	c.peers = c.peers[:servers:servers]
	subset := NewSubset(algorithm(t, "random"), servers, 0)
	now, taken := int64(0), [servers]int32{}
	for range 2000 {
		now += int64(uniform(rng, 100*millisecond))
		switch uniform(rng, 8) {
		case 0:
			c.Quarantine(now, int32(uniform(rng, servers)), rng)
		case 1:
			c.WantOther([]int32{0}, rng)
		case 2:
			subset.UpdateBorrowing(&c.Ladder)
		case 3:
			if entry, ok := c.Check(now, rng); ok {
				_, peer, _, _, _ := c.Slot(entry)
				c.Release(now, entry, Response{Outcome: Success, Lowest: NoSlot}, rng)
				c.Checked(now, peer, true, rng)
			}
		case 4:
			if entry, ok := c.Acquire(now, nil, rng); ok {
				outcome := Outcome(uniform(rng, 4))
				c.Release(now, entry, Response{Outcome: outcome, Lowest: NoSlot}, rng)
			}
		}
		for _, ok := c.Trim(); ok; _, ok = c.Trim() {
		}
		peer, _, ok := c.NextRequest(now, rng)
		if !ok {
			continue
		}
		switch LeaseResult(uniform(rng, 3)) {
		case Granted:
			c.Grant(now, peer, taken[peer], rng)
			taken[peer] = (taken[peer] + 1) % 100
		case Declined:
			c.Done(now, peer, Declined, rng)
		case Failed:
			c.Quarantine(now, peer, rng)
			c.Done(now, peer, Failed, rng)
		}
		c.check(t)
	}
	require.Positive(t, c.Held())
}

// The end of one quarantine does not examine the servers whose quarantine continues. The
// test makes these wrong: a step that examines them would end their quarantines.
func TestAdvanceExaminesOnlyServersThatAreDue(t *testing.T) {
	rng := testseed.PCG(t)
	const servers = 1000
	l := NewLadder(4, make([]Slot, 5), make([]Peer, servers))
	for peer := range int32(servers) {
		l.Join(0, peer, rng)
		l.Quarantine(0, peer, rng)
	}
	_, first := l.first(alarmChange)
	for i := range l.peers {
		l.peers[i].quarantine.until = 0
	}
	l.Advance(first, rng)
	ended := 0
	for i := range l.peers {
		if !l.peers[i].isolated {
			ended++
		}
	}
	require.Equal(t, 1, ended)
	require.Equal(t, int32(servers-1), l.alarms[alarmChange])
}
