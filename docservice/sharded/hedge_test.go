package sharded

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// The percentile is that of the recent times, at most an eighth too high.
func TestTimesPercentile(t *testing.T) {
	r := testseed.Rand(t)
	var all times
	for _, scale := range []float64{1e5, 1e8, 1e6} { // the times change
		var recent []time.Duration
		var limit time.Duration
		for range 20 * maxTimes {
			took := time.Duration(scale * math.Exp(r.NormFloat64()))
			recent = append(recent, took)
			if now := all.add(took); now > 0 {
				limit = now
			}
		}
		recent = recent[len(recent)-maxTimes:]
		slices.Sort(recent)
		exact := float64(recent[len(recent)*hedgePercent/100])
		got := float64(limit)
		require.Greater(t, got, 0.7*exact, "a sample of 1,000")
		require.Less(t, got, 1.6*exact)
	}
}

func TestTimesBuckets(t *testing.T) {
	for took := time.Duration(1); took < time.Hour && took > 0; took = took*17/16 + 1 {
		i := bucketOf(took)
		require.Less(t, i, timeOctave*timeSteps)
		if took > 1<<firstBits && i < timeOctave*timeSteps-1 {
			require.Greater(t, endOf(i), took)
			require.LessOrEqual(t, float64(endOf(i)), float64(took)*1.126)
		}
	}
	var few times
	for range minTimes - 1 {
		require.Zero(t, few.add(time.Second), "too few times")
	}
}

// However many sub-batches are slow, and whatever runs concurrently, no more than one in
// hedgeEvery is hedged, and maxHedges more.
func TestHedgeBudget(t *testing.T) {
	var h hedger
	require.Nil(t, h.queue(5), "no times are known")
	for range minTimes {
		h.answered(5, time.Millisecond)
	}
	require.Nil(t, h.queue(9), "another size class")
	var mu sync.Mutex
	queued, hedges := 0, 0
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 1000 {
				allowed := h.queue(5).Allow()
				mu.Lock()
				queued++
				if allowed {
					hedges++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	require.LessOrEqual(t, hedges, queued/hedgeEvery+maxHedges)
	require.GreaterOrEqual(t, hedges, queued/hedgeEvery-1)
	require.Equal(t, &h.classes[0], h.class(1))
	require.Equal(t, &h.classes[sizeClasses-1], h.class(1<<20))
}
