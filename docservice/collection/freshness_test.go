package collection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFreshness(t *testing.T) {
	var f Freshness
	for _, took := range []time.Duration{-time.Second, 10 * time.Millisecond, 11 * time.Millisecond, time.Minute, 2 * time.Hour} {
		f.add(took)
	}
	require.Equal(t, uint64(5), f.Count)
	require.Equal(t, 2*time.Hour+time.Minute+21*time.Millisecond, f.Sum, "the clock of the ingest host may be ahead")
	cumulative := f.Cumulative()
	require.Len(t, cumulative, freshnessBuckets)
	for bound, want := range map[float64]uint64{0.01: 2, 0.02: 3, 40.96: 3, 81.92: 4, 5242.88: 4} {
		require.Equal(t, want, cumulative[bound], "%v", bound)
	}
	upper, counts := f.Buckets()
	require.Len(t, upper, freshnessBuckets)
	require.Equal(t, []uint64{2, 1}, counts[:2])
	require.Equal(t, uint64(1), counts[13], "a minute")
	require.Equal(t, uint64(1), counts[freshnessBuckets], "above all bounds")
}

// Entries that existed before the start say nothing about the delay.
func TestFreshnessOfNewEntries(t *testing.T) {
	f := newMemFixture(t)
	f.put("a", "1")
	c := f.ready()
	require.Zero(t, c.Status().Freshness.Count)
	f.put("b", "2")
	waitFor(t, c, "the entry is served", func(s Status) bool { return s.Applied == 2 })
	fresh := c.Status().Freshness
	require.Equal(t, uint64(1), fresh.Count)
	require.GreaterOrEqual(t, fresh.Sum, c.Status().VisibleAfter)
}
