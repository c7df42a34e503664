package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// faulty returns a fleet with a deadline of a second in a scenario.
func faulty(policy, scenario string) config {
	c := small(policy)
	c.scenario, c.deadline, c.k = scenario, time.Second, 200
	return c
}

// Only slots detect that a server is silent; then each frontend loses few requests.
func TestSilenceIsDetected(t *testing.T) {
	late := func(policy string, timeout time.Duration) uint64 {
		c := faulty(policy, "silent")
		c.options.SilenceTimeout = int64(timeout)
		_, r := simulated(t, c)
		require.Equal(t, r.counts.failures, r.counts.expired)
		return r.counts.expired
	}
	without := late("slots", 0)
	require.Greater(t, late("p2c", 0), without)
	require.Greater(t, without, 3*late("slots", 500*time.Millisecond))
}

func TestHedgesShortenTheTailOfGreyFailures(t *testing.T) {
	c := faulty("slots", "grey")
	c.deadline = 0
	_, without := simulated(t, c)
	c.hedge = 200 * time.Millisecond
	s, with := simulated(t, c)
	require.Zero(t, without.counts.hedges)
	require.Less(t, 3*with.p999, 2*without.p999)
	hedged := share(with.counts.hedges, with.counts.requests)
	require.Greater(t, hedged, 0.001)
	require.Less(t, hedged, 0.2, "the retry budget")
	require.LessOrEqual(t, s.shadows, len(s.tasks)-len(s.freeTasks))
}

// A server ten times as slow misses the deadline and is ejected.
func TestLateServersAreEjected(t *testing.T) {
	c := faulty("slots", "grey")
	c.deadline = 300 * time.Millisecond
	_, slots := simulated(t, c)
	c.policy = "roundrobin"
	_, other := simulated(t, c)
	require.Positive(t, slots.counts.expired)
	require.Less(t, 2*slots.counts.expired, other.counts.expired)
}

// With two backends each, some frontends lose both with their zone, and use others until
// one is back.
func TestDeadSubsetsBorrow(t *testing.T) {
	c := small("slots")
	c.frontends, c.backends, c.k, c.load, c.scenario, c.subset = 500, 1000, 2, "0.05", "zone", "random"
	_, without := simulated(t, c)
	c.borrow = true
	_, with := simulated(t, c)
	require.Zero(t, without.counts.borrowings)
	require.Positive(t, with.counts.borrowings)
	require.Positive(t, without.counts.lost())
	require.Less(t, 2*with.counts.lost(), without.counts.lost())
}

// Frontends use their clocks for differences of times only. All frontends have the same rate: the
// p99 of a few hot ones would depend on their slots.
func TestClockSkewDoesNotMatter(t *testing.T) {
	for _, policy := range []string{"slots", "knotty"} {
		c := small(policy)
		c.scenario, c.hotShare = "failures", 0
		_, exact := simulated(t, c)
		c.skew = time.Hour
		_, skewed := simulated(t, c)
		require.InEpsilon(t, exact.p99.Seconds(), skewed.p99.Seconds(), 0.05, policy)
		require.InDelta(t, share(exact.counts.lost(), exact.counts.requests), share(skewed.counts.lost(), skewed.counts.requests), 0.005, policy)
	}
}

// A drained server that has restarted gets slots again. Until it fails, a connection to it
// stays open without slots.
func TestRestartedServersAreUsedAgain(t *testing.T) {
	c := faulty("slots", "rolling")
	c.duration = 60 * time.Second
	_, r := simulated(t, c)
	require.Zero(t, r.counts.lost())
}

// Frontends replace the slots of silent backends in 2 s, and hold the lowest free slots of the
// others in 10 s: new frontends, idle ones and ones under load.
func TestSilentBackendsDelayNoLease(t *testing.T) {
	for _, silent := range []float64{0.1, 0.4, 0.7} {
		for _, scenario := range []string{"silent-start", "silent"} {
			for _, load := range []string{"0.001", "0.2"} {
				t.Run(fmt.Sprintf("%s/silent=%v/load=%s", scenario, silent, load), func(t *testing.T) {
					c := faulty("slots", scenario)
					c.backends, c.k, c.size, c.load, c.failShare, c.coldShare = 60, 60, 64, load, silent, 0
					c.options.SilenceTimeout = 1e9
					c.duration = 60 * time.Second
					_, r := simulated(t, c)
					require.Positive(t, r.short)
					require.Less(t, r.short, 2*time.Second)
					require.Less(t, r.seeking, 10*time.Second)
				})
			}
		}
	}
}

// A random subset of two backends may have no free slot while others have many. A frontend that
// lacks slots borrows backends, and keeps them while it needs them.
func TestFullSubsetsBorrow(t *testing.T) {
	c := small("slots")
	c.frontends, c.backends, c.k, c.size, c.board = 200, 100, 2, 8, 20
	c.subset, c.hotShare, c.warmup, c.duration = "random", 0, 0, 30*time.Second
	missing := func(s *simulation) (n int) {
		for f := range s.frontends {
			n += c.size - s.slots(int32(f)).Held()
		}
		return n
	}
	s, _ := simulated(t, c)
	require.Greater(t, missing(s), 50)
	c.borrow = true
	s, r := simulated(t, c)
	require.Zero(t, missing(s))
	require.Positive(t, r.counts.borrowings)
	require.Less(t, r.counts.borrowings, uint64(c.frontends/2))
}
