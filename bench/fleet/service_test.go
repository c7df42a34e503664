package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// document returns the document's load at a hundredth of its size.
func document(policy string) config {
	c := small(policy)
	c.frontends, c.backends, c.k, c.load, c.hotTimes = 100, 10_000, 100, "document", 10
	return c
}

// The document's estimate has no slack: with a constant service time and no queueing a
// request takes exactly 100 ms.
func TestDocumentsEstimate(t *testing.T) {
	s, r := simulated(t, document("slots"))
	require.Equal(t, 100*time.Millisecond, r.p50)
	require.Equal(t, 100*time.Millisecond, r.p99)
	require.Equal(t, int64(100e6), slices.Min(append(s.measure.hot, s.measure.rest...)))
}

// A new connection costs a round trip and the slow start.
func TestNewConnectionsAreSlow(t *testing.T) {
	s, r := simulated(t, document("viamedia"))
	require.Positive(t, r.counts.connects)
	require.Equal(t, int64(100e6), s.measure.rest[0])
	require.Contains(t, s.measure.rest, 100e6+2*trip+s.extra)
	// 14,600 bytes, 29,200 and 58,400 are less than the 100,000 of a round trip.
	require.Equal(t, int64(3*1_000_000-(146_000+292_000+584_000)), s.extra)
	require.Zero(t, slowStart(100_000), "the initial window is enough")
}

// 100 responses of 1 MB per second occupy a link that transfers one in 10 ms all the time.
func TestLinkOfAHotFrontendIsSaturated(t *testing.T) {
	c := document("slots")
	c.sharedLink = true
	_, r := simulated(t, c)
	require.Greater(t, r.p99Hot, 150*time.Millisecond)
	require.Less(t, r.p99Rest, 130*time.Millisecond)
}

func TestShapesHaveMean1(t *testing.T) {
	gen := rand.New(rand.NewPCG(1, 2))
	const n = 200_000
	for _, shape := range shapes {
		values := make(times, n)
		for i := range values {
			values[i] = int64(1e6 * shape.draw(gen, 0.5))
		}
		slices.Sort(values)
		require.InEpsilon(t, 1e6, float64(values.mean()), 0.03, shape.name)
		require.InEpsilon(t, 1e6*shape.p99(0.5), float64(values.quantile(0.99)), 0.05, shape.name)
	}
}

func TestQuantilesAreExact(t *testing.T) {
	values := make(times, 1000)
	for i := range values {
		values[i] = int64(i + 1)
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		require.Equal(t, want, values.quantile(share))
	}
	require.Zero(t, times(nil).quantile(0.5))
	require.Zero(t, times(nil).mean())
}

func TestLargestServiceTimeThatMeetsTheGoal(t *testing.T) {
	find := func(shape int) result {
		c := document("slots")
		c.frontends, c.backends, c.duration, c.warmup = 20, 2000, 2*time.Second, time.Second
		c.service, c.shape, c.sigma = 100*time.Millisecond, shapes[shape], 0
		require.NoError(t, c.resolve())
		r, err := largest(c, 100*time.Millisecond, func(float64, uint64) {})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, 88_750*time.Microsecond, find(0).config.service, "the last step below 88.979 ms")
	exponential := find(1).config.service
	require.InEpsilon(t, 88.979/math.Log(100), exponential.Seconds()*1000, 0.1)
}
