package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// use makes one request, whose response reports the given load, and returns its server.
func (c *client) use(t *testing.T, f *fleet, load int32) int32 {
	entry, ok := c.ladder.Acquire(f.now, c.rng)
	require.True(t, ok)
	_, peer, _, _, _ := c.ladder.Slot(entry)
	f.answer(c, entry)
	c.ladder.ReportLoad(f.now, entry, load)
	c.ladder.check(t)
	return peer
}

// loaded returns a filled ladder to which servers have reported a request each.
func loaded(t *testing.T, servers int) (f *fleet, c *client) {
	f, c = filled(t, servers, servers)
	c.ladder.averageLoad = averageScale
	return f, c
}

func TestIdleServerIsUsedFirst(t *testing.T) {
	f, c := loaded(t, 5)
	first := c.use(t, f, 0)
	for range 20 {
		f.now += idleFor
		require.Equal(t, first, c.use(t, f, 0), "no other client uses it")
	}
	// With load from others it ranks like any other.
	f.now++
	require.Equal(t, first, c.use(t, f, 3))
	second := c.use(t, f, 3)
	require.NotEqual(t, first, second)
	f.now++
	third := c.use(t, f, 0)
	require.NotContains(t, []int32{first, second}, third)
	f.now++
	require.Equal(t, third, c.use(t, f, 0))
	// The latest report is used first.
	entry, _ := c.ladder.Acquire(f.now, c.rng)
	f.now++
	fourth := c.use(t, f, 0)
	f.answer(c, entry)
	f.now++
	c.ladder.ReportLoad(f.now, entry, 0)
	require.Equal(t, third, c.use(t, f, 3))
	require.Equal(t, fourth, c.use(t, f, 3))
}

// Reports of idle servers do not change the order while hardly any server has load:
// a client would concentrate its requests on some servers.
func TestIdleFleetIsUsedEvenly(t *testing.T) {
	f, c := filled(t, 5, 5)
	requests := make([]int, 5)
	for i := range 1000 {
		f.now++
		load := int32(0)
		if i%100 == 0 {
			load = 1
		}
		requests[c.use(t, f, load)]++
		if i%10 == 9 {
			require.Equal(t, []int{2, 2, 2, 2, 2}, requests)
			clear(requests)
		}
	}
	for i := range 1000 {
		f.now++
		c.use(t, f, int32(i%10/9))
	}
	require.Greater(t, c.ladder.averageLoad, int32(heedAverage), "one report of ten is 1")
	first := c.use(t, f, 0)
	require.Equal(t, first, c.use(t, f, 0))
}

func TestLoadReportExpires(t *testing.T) {
	f, c := loaded(t, 5)
	var order []int32
	for range 5 {
		order = append(order, c.use(t, f, 0))
		f.now += idleFor + 1
	}
	require.ElementsMatch(t, []int32{0, 1, 2, 3, 4}, order, "a client with few requests uses all servers")
	require.Equal(t, order[0], c.use(t, f, 0))
}

func TestLoadBelowAverageRanksFirst(t *testing.T) {
	f, c := filled(t, 5, 5)
	for range 1000 {
		f.now++
		c.use(t, f, 10)
	}
	busy := c.use(t, f, 11)
	require.NotEqual(t, busy, c.use(t, f, 10))
	quiet := c.use(t, f, 6)
	f.now++
	require.Equal(t, quiet, c.use(t, f, 6))
	// The lowest load is used first.
	entry, _ := c.ladder.Acquire(f.now, c.rng)
	lessLoaded := c.use(t, f, 2)
	f.now++
	f.answer(c, entry)
	c.ladder.ReportLoad(f.now, entry, 3)
	require.Equal(t, lessLoaded, c.use(t, f, 2))
}

// A low load does not raise the rank of a suspect server.
func TestIdleButSuspectServerRanksLast(t *testing.T) {
	f, c := loaded(t, 3)
	quiet := c.use(t, f, 0)
	c.ladder.SetSuspect(quiet, true)
	require.NotEqual(t, quiet, c.use(t, f, 9))
	entry := c.ladder.freeOf(quiet)
	require.NotEqual(t, none, entry)
	c.ladder.take(entry)
	c.ladder.Release(f.now, entry, Neutral, c.rng)
	c.ladder.ReportLoad(f.now, entry, 0)
	c.ladder.check(t)
	require.NotEqual(t, quiet, c.use(t, f, 9))
}

// Two busy and two idle clients share ten servers. The idle clients hold half of the
// lowest slots, so that the busy ones share servers while others are idle. With load
// reports the busy clients use different servers.
func TestLoadReportsSeparateClients(t *testing.T) {
	rng := testseed.PCG(t)
	shared := func(reports bool) (share float64) {
		f := newFleet(t, 10, 4, 10, rng)
		f.trust()
		f.settle(rng)
		busy := make([]int32, len(f.boards))
		type request struct {
			c     *client
			entry int32
			end   int64
		}
		var under []request
		requests, concurrent := 0, 0
		for range 4000 {
			for _, c := range f.all[:2] {
				for c.ladder.Busy() < 3 {
					entry, ok := c.ladder.Acquire(f.now, c.rng)
					require.True(t, ok)
					peer := c.ladder.slots[entry].peer
					requests++
					if busy[peer] > 0 {
						concurrent++
					}
					busy[peer]++
					under = append(under, request{c, entry, f.now + 1e6 + int64(uniform(rng, 8e6))})
				}
			}
			first := 0
			for i := range under {
				if under[i].end < under[first].end {
					first = i
				}
			}
			r := under[first]
			under = append(under[:first], under[first+1:]...)
			f.now = r.end
			peer := r.c.ladder.slots[r.entry].peer
			busy[peer]--
			f.answer(r.c, r.entry)
			if reports {
				r.c.ladder.ReportLoad(f.now, r.entry, busy[peer])
			}
		}
		return float64(concurrent) / float64(requests)
	}
	const fleets = 80
	without, with := 0.0, 0.0
	for range fleets {
		without += shared(false) / fleets
		with += shared(true) / fleets
	}
	t.Logf("share of requests that find their server busy: %.3f, with load reports %.3f", without, with)
	require.Greater(t, without, 0.1)
	require.Less(t, with, 0.9*without) // about 0.6 on average; 1 in some fleets
}
