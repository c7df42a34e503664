package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each row of a table is heard of with the same probability in each interval, so that the
// ages have an exponential distribution.
func TestTablesAreAsFreshAsTheGossipAllows(t *testing.T) {
	for relays, deliveries := range []float64{3, 3 + 3*3} {
		c := small("knotty")
		c.gossipRelays, c.duration, c.load = relays, 40*time.Second, "0.01"
		_, r := simulated(t, c)
		require.InEpsilon(t, math.Ln2*float64(c.frontends)/deliveries, float64(r.age)/1e9, 0.15, "%d relays", relays)
		require.InEpsilon(t, deliveries*float64(c.backends), r.perSecond(r.counts.gossip), 0.01)
		require.InDelta(t, 1-math.Pow(1-1/float64(c.frontends), 2*deliveries), r.fresh, 0.05)
	}
}

func TestTokensLimitTheRateOfABackend(t *testing.T) {
	for _, policy := range []string{"knotty", "viamedia"} {
		c := small(policy)
		c.tokens = 0.3
		s, r := simulated(t, c)
		// At 40 % load some backends of the subsets have no token left.
		require.Greater(t, share(r.counts.rateLimited, r.counts.requests), 0.01, policy)
		require.InDelta(t, r.counts.denied, r.counts.rateLimited, 20, "but for those on their way at the start and the end")
		perSecond := c.tokens / loadService.Seconds()
		bound := 10 + perSecond*(c.warmup+c.duration).Seconds()
		for i := range s.backends {
			require.LessOrEqual(t, float64(s.backends[i].served), bound)
		}
	}
}

func TestAConnectionForEachRequestLimitsFormulaic(t *testing.T) {
	c := small("formulaic")
	c.load, c.hotTimes = "0.8", 10
	_, without := simulated(t, c)
	require.Zero(t, without.counts.refused)
	c.options.Connections = 1
	_, with := simulated(t, c)
	require.Greater(t, share(with.counts.refused, with.counts.requests), 0.05)
	require.Less(t, with.p99, without.p99)
}
