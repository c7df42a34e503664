package core

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestTimesP99IsWithinAQuarter(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for range 200 {
		var times Times
		mean := math.Exp(rng.Float64()*8) * 1e6 // 1 ms to 3 s
		all := make([]int64, 1+rng.IntN(1000))
		for i := range all {
			all[i] = min(int64(rng.ExpFloat64()*mean), 4e9)
			times.Add(all[i])
		}
		slices.Sort(all)
		exact := all[len(all)-1-len(all)/100]
		got := times.P99(0)
		require.Greater(t, got, exact)
		require.LessOrEqual(t, got, exact+exact/4+1<<timesUnitBits)
	}
}

func TestTimesBucketsFollowOneAnother(t *testing.T) {
	at := int64(0)
	for bucket := range timesBuckets {
		require.Equal(t, bucket, timesBucket(at))
		end := timesEnd(bucket)
		if bucket < timesBuckets-1 { // the last bucket is unbounded
			require.Equal(t, bucket, timesBucket(end-1))
		}
		at = end
	}
	require.Equal(t, timesBuckets-1, timesBucket(math.MaxInt64))
	require.Zero(t, timesBucket(-1))
}

func TestTimesDecay(t *testing.T) {
	var times Times
	require.Zero(t, times.P99(0))
	for range 100 {
		times.Add(500e6)
	}
	require.Greater(t, times.P99(1), int64(500e6))
	for i := range 20 { // after the slow minute, 100 fast responses in each half-life
		for range 100 {
			times.Add(1e6)
		}
		times.P99(int64(i+1) * timesHalfLife)
	}
	require.Less(t, times.P99(21*timesHalfLife), int64(3e6))
	for range 10 {
		times.halve()
	}
	require.Zero(t, times.P99(21*timesHalfLife), "the histogram becomes empty")
}

func BenchmarkTimesAdd(b *testing.B) {
	b.ReportAllocs()
	var times Times
	for i := range b.N {
		times.Add(int64(i) << 8)
	}
	if times.total == 0 {
		b.Fatal("nothing was counted")
	}
}
