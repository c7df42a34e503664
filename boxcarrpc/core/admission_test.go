package core

import (
	"container/list"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// tokens is a token bucket with floating-point tokens, the model for Rate.
type tokens struct {
	held, burst, perNano float64
	at                   int64
}

func (b *tokens) take(now int64, n, keep int) bool {
	b.held = min(b.burst, b.held+float64(now-b.at)*b.perNano)
	b.at = now
	if b.held < float64(n+keep)-1e-9 {
		return false
	}
	b.held -= float64(n)
	return true
}

func TestRateAgainstTokenBucket(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for range 100 {
		interval, burst := 1+rng.Int64N(1e7), 1+rng.IntN(50)
		rate, err := NewRate(1e9/float64(interval), burst)
		require.NoError(t, err)
		require.Equal(t, interval, rate.interval)
		model := tokens{held: float64(burst), burst: float64(burst), perNano: 1 / float64(interval)}
		var now, bucket int64
		for range 1000 {
			// Whole tokens only: the two may round fractions differently.
			now += interval * rng.Int64N(4)
			n, keep := 1+rng.IntN(3), rng.IntN(3)
			after, ok := rate.Take(now, bucket, n, keep)
			require.Equal(t, model.take(now, n, keep), ok)
			if !ok {
				require.Equal(t, bucket, after, "a refused request takes no tokens")
			}
			require.InDelta(t, model.held, rate.Tokens(now, after), 1e-6)
			bucket = after
		}
	}
}

func TestBucketAdmitsBurstThenRate(t *testing.T) {
	rate, err := NewRate(1000, 10)
	require.NoError(t, err)
	var bucket int64
	count := func(from, to int64) (n int) {
		for now := from; now < to; now += 1e4 {
			after, ok := rate.Take(now, bucket, 1, 0)
			if bucket = after; ok {
				n++
			}
		}
		return n
	}
	require.Equal(t, 10+999, count(0, 1e9))
	require.Equal(t, 1000, count(1e9, 2e9))
	require.Equal(t, 10+999, count(3e9, 4e9), "a bucket holds at most a burst")
	_, ok := rate.Take(1e18, bucket, 11, 0)
	require.False(t, ok, "more than the burst")
	for _, x := range []struct {
		perSecond float64
		burst     int
	}{{0, 1}, {-1, 1}, {2e9, 1}, {1, 0}, {1, MaxBurst + 1}} {
		_, err := NewRate(x.perSecond, x.burst)
		require.Error(t, err)
	}
}

func TestReserve(t *testing.T) {
	for limit, want := range map[int]int{1: 0, 2: 1, 3: 1, 4: 1, 7: 1, 8: 2, 100: 25, 65536: 16384} {
		require.Equal(t, want, Reserve(limit), limit)
	}
	rate, err := NewRate(1000, 8)
	require.NoError(t, err)
	require.Equal(t, 8, rate.Burst())
}

// Buckets against a list in the order of use.
func TestBucketsEvictLeastRecentlyUsed(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for _, limit := range []int{1, 2, 7} {
		rate, err := NewRate(1, 3)
		require.NoError(t, err)
		b := NewBuckets[int](rate, limit)
		type entry struct{ key, left int }
		order := list.New()
		for range 2000 {
			key, keep := rng.IntN(2*limit), rng.IntN(2)
			var found *list.Element
			for e := order.Front(); e != nil; e = e.Next() {
				if e.Value.(*entry).key == key {
					found = e
				}
			}
			if found == nil {
				if order.Len() == limit {
					order.Remove(order.Back())
				}
				found = order.PushFront(&entry{key, 3})
			}
			order.MoveToFront(found)
			e := found.Value.(*entry)
			ok := e.left > keep
			require.Equal(t, ok, b.Take(0, key, 1, keep))
			if ok {
				e.left--
			}
			require.Equal(t, order.Len(), b.Len())
			require.Len(t, b.index, b.Len())
		}
	}
}

func TestTakingFromBucketsAllocatesNothing(t *testing.T) {
	rate, err := NewRate(1000, 10)
	require.NoError(t, err)
	b := NewBuckets[int32](rate, 100)
	key, now := int32(0), int64(0)
	step := func() {
		key, now = (key+1)%200, now+1e5
		b.Take(now, key, 1, 0)
	}
	for range 1000 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(1000, step))
}

func BenchmarkBuckets(b *testing.B) {
	rate, err := NewRate(1000, 10)
	require.NoError(b, err)
	buckets := NewBuckets[int32](rate, 10_000)
	b.ReportAllocs()
	admitted := 0
	for i := range b.N {
		if buckets.Take(int64(i)*1000, int32(i%8000), 1, 0) {
			admitted++
		}
	}
	if admitted == 0 {
		b.Fatal("nothing was admitted")
	}
}
