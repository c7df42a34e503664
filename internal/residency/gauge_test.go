package residency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGauge: which groups of 50 reads are cold.
func TestGauge(t *testing.T) {
	const fast, slow = 100 * time.Microsecond, 2 * time.Millisecond
	var g Gauge
	group := func(took time.Duration, pages uint64) (cold bool) {
		group := Group{gauge: &g, left: g.left.Load()}
		group.end(50, took, pages)
		return group.IsCold()
	}
	require.False(t, group(fast, 0))
	require.False(t, group(fast, 0), "the one before was fast")
	require.False(t, group(slow, 0), "pages are not counted yet")
	require.False(t, group(slow, 3), "the one before may have been slow for another reason")
	require.False(t, group(slow, 0), "three pages are too few")
	require.Zero(t, g.ColdReads().Count)

	require.False(t, group(slow, 170))
	require.True(t, group(slow, 170))
	require.True(t, group(fast, 4))
	for range coldGroups {
		require.True(t, g.IsCold())
		require.True(t, group(fast, 3))
	}
	require.False(t, g.IsCold())
	require.False(t, group(fast, 0), "the last one whose pages are counted")
	require.Zero(t, g.left.Load())

	got := g.ColdReads()
	require.EqualValues(t, 3, got.Count)
	require.Equal(t, 2*slow+fast, got.Sum)
	for bound, n := range got.Cumulative() {
		want := uint64(0)
		for _, took := range []time.Duration{fast, slow, slow} {
			if took.Seconds() <= bound {
				want++
			}
		}
		require.Equal(t, want, n, bound)
	}
	upper, counts := got.Buckets()
	require.Len(t, counts, len(upper)+1)
	require.EqualValues(t, 1, counts[1], "fast, up to %g s", upper[1])
	require.EqualValues(t, 2, counts[5], "slow, up to %g s", upper[5])
	require.Zero(t, counts[len(upper)])
}

// TestGaugeOfConcurrentGroups: a group that began earlier does not end a cold time that
// another group has seen meanwhile.
func TestGaugeOfConcurrentGroups(t *testing.T) {
	var g Gauge
	g.left.Store(1)
	early, cold := Group{gauge: &g, left: 1}, Group{gauge: &g, left: 1}
	cold.end(1, time.Millisecond, 4)
	require.True(t, g.IsCold())
	early.end(1, time.Millisecond, 0)
	require.EqualValues(t, 1+coldGroups, g.left.Load())
}

// TestSharedGroups: cold groups are shared while others are in progress, and for some time
// afterwards; others never are.
func TestSharedGroups(t *testing.T) {
	if !Supported {
		t.Skip("no group is cold here")
	}
	var g, other Gauge
	one := func(g *Gauge) (shared bool) {
		group := g.Begin()
		group.Yield()
		shared = group.IsShared()
		group.gauge.left.Store(1 + coldGroups) // stays cold
		group.End(1)
		return shared
	}
	g.left.Store(1 + coldGroups)
	require.False(t, one(&g), "it is alone")
	require.False(t, one(&g))
	other.left.Store(1 + coldGroups)
	slow := other.Begin()
	require.True(t, one(&g))
	slow.End(1)
	for range sharedGroups {
		require.True(t, g.IsCold())
		g.left.Store(1 + coldGroups)
		one(&g)
	}
	g.left.Store(1 + coldGroups)
	require.False(t, one(&g), "it has been alone for long")
	require.Zero(t, sharing.reading.Load())

	var warm Gauge
	slow = other.Begin()
	group := warm.Begin()
	require.False(t, group.IsShared())
	group.End(1)
	slow.End(1)
	require.Zero(t, sharing.reading.Load())
}

// TestLongReads: a duration above the last bound is in no bucket.
func TestLongReads(t *testing.T) {
	var l latencies
	l.add(time.Hour)
	loaded := l.load()
	require.EqualValues(t, 1, loaded.Count)
	require.Len(t, loaded.Cumulative(), latencyBuckets)
	for _, n := range loaded.Cumulative() {
		require.Zero(t, n)
	}
	_, counts := loaded.Buckets()
	require.EqualValues(t, 1, counts[latencyBuckets])
}

// BenchmarkGauge measures what a group and a single read cost while all reads are fast.
func BenchmarkGauge(b *testing.B) {
	var g Gauge
	b.Run("group", func(b *testing.B) {
		for b.Loop() {
			group := g.Begin()
			group.End(50)
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			group := g.BeginOne()
			group.End(1)
		}
	})
}
