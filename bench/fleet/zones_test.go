package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inZones returns a fleet of three zones with subsets of k backends in each.
func inZones(scenario string, k int, zoned bool) config {
	c := small("slots")
	c.frontends, c.backends, c.k, c.load, c.scenario, c.zoned = 30, 600, k, "0.6", scenario, zoned
	c.hotShare, c.coldShare, c.hotTimes = 0, 0, 10
	c.duration, c.warmup, c.deadline, c.borrow = 6*time.Second, 8*time.Second, time.Second, true
	return c
}

// The promises of README.md for zones, with all servers and with subsets.
func TestZones(t *testing.T) {
	for _, k := range []int{600, 120} {
		left := func(r result) float64 { return share(r.counts.left, r.counts.attempts) }
		_, blind := simulated(t, inZones("steady", k, false))
		_, zoned := simulated(t, inZones("steady", k, true))
		require.InDelta(t, 2.0/3, left(blind), 0.05)
		require.Less(t, left(zoned), 0.01, "even zones")
		require.Less(t, zoned.p99.Seconds(), 1.05*blind.p99.Seconds(), "even zones")

		_, blind = simulated(t, inZones("hotzone", k, false))
		s, zoned := simulated(t, inZones("hotzone", k, true))
		require.Less(t, zoned.p99.Seconds(), 1.2*blind.p99.Seconds(), "a zone at twice the load")
		require.Less(t, left(zoned), 0.1)
		var served [zones]float64
		for b := range s.backends {
			served[zoneOf(int32(b))] += float64(s.backends[b].served)
		}
		require.Greater(t, served[0], 1.5*served[1], "the zone keeps what it can serve")

		s, zoned = simulated(t, inZones("zone", k, true))
		require.Zero(t, zoned.counts.lost(), "a lost zone")
		for f := range s.frontends {
			if zoneOf(int32(f)) == 0 {
				require.Positive(t, s.slots(int32(f)).Left())
			}
		}
	}
}

// A zone at 1.26 times its capacity sends the rest to the others.
func TestOverloadedZone(t *testing.T) {
	c := inZones("hotzone", 600, true)
	c.load = "0.85"
	_, r := simulated(t, c)
	require.Zero(t, r.counts.lost())
	require.Greater(t, share(r.counts.left, r.counts.attempts), 0.1)
	require.Less(t, r.p99, 300*time.Millisecond)
}

// All requests return to the zone within seconds after it has returned.
func TestRequestsReturnToTheZone(t *testing.T) {
	c := inZones("zone", 600, true)
	c.warmup, c.duration = 5*time.Second, 20*time.Second
	require.NoError(t, c.resolve())
	s, err := newSimulation(c)
	require.NoError(t, err)
	for f := range s.frontends {
		s.join(int32(f))
	}
	leftBetween := func(from, to time.Duration) float64 {
		for s.step(int64(from)) {
		}
		before := s.measure.counts
		for s.step(int64(to)) {
		}
		return share(s.measure.counts.left-before.left, s.measure.counts.attempts-before.attempts)
	}
	lost, back := c.warmup+time.Duration(failAt*float64(c.duration)), c.warmup+time.Duration(returnAt*float64(c.duration))
	require.Less(t, leftBetween(c.warmup, lost), 0.01)
	require.Greater(t, leftBetween(lost+time.Second, back), 0.3)
	require.Less(t, leftBetween(back+3*time.Second, back+5*time.Second), 0.02)
}
