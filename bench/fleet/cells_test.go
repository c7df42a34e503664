package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// divided returns a fleet of 4 cells with 2 columns of 25 rows each.
func divided(scenario string) config {
	c := small("slots")
	c.frontends, c.backends, c.cells, c.columns, c.k, c.scenario = 80, 200, 4, 2, 20, scenario
	c.hotShare, c.coldShare = 0, 0
	return c
}

func TestAColumnsFrontendsUseItsRows(t *testing.T) {
	s, r := simulated(t, divided("steady"))
	for key, p := range s.pairs {
		frontend, backend := int(key>>32), int(uint32(key))
		require.Equal(t, frontend%8, backend/25)
		require.Positive(t, p.lanes)
	}
	require.Equal(t, 8.0, r.config.perBackend(), "10 frontends of a group with 20 backends each, of 25")
	require.Zero(t, r.counts.lost())
}

// Requests are lost until the frontends have learned of the loss. Then one neighbour has
// twice the load, or each of three others a third more.
func TestLossOfACell(t *testing.T) {
	busiest := func(scenario string) (cell [4]float64, r result) {
		c := divided(scenario)
		c.duration = 20 * time.Second
		s, r := simulated(t, c)
		for b := range s.backends {
			cell[b/50] += float64(s.backends[b].served)
		}
		return cell, r
	}
	before, steady := busiest("steady")
	neighbour, toOne := busiest("neighbour")
	spread, toAll := busiest("cell")
	require.Zero(t, steady.counts.lost())
	require.Less(t, neighbour[0], 0.6*before[0], "it is lost half of the time")
	require.Greater(t, neighbour[1], 1.4*before[1])
	for cell := 1; cell < 4; cell++ {
		require.InEpsilon(t, 1+0.5/3, spread[cell]/before[cell], 0.06)
	}
	require.Greater(t, toOne.p99, toAll.p99)
	for _, r := range []result{toOne, toAll} {
		lost := share(r.counts.lost(), r.counts.requests)
		require.Less(t, lost, 0.25*learnSpread/20e9, "half of the time in which the frontends learn")
		require.Positive(t, lost)
	}
}

// The last backend hears of an announcement when an etcd has notified all: 1,000 without
// cells, 10 relays and 100 backends with them.
func TestAnnouncementsAreRelayed(t *testing.T) {
	last := func(cells int) time.Duration {
		c := small("slots")
		c.cells = cells
		require.NoError(t, c.resolve())
		s, err := newSimulation(c)
		require.NoError(t, err)
		return s.announce().quantile(1)
	}
	require.EqualValues(t, etcdCommit+1000*etcdNotify+trip, last(1))
	require.EqualValues(t, 2*etcdCommit+10*etcdNotify+2*trip+100*etcdNotify+trip, last(10))
}
