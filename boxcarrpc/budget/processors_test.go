package budget

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

func TestFairUse(t *testing.T) {
	const one = fullUse
	for name, c := range map[string]struct {
		total              float64
		active, processors int
		want               float64
	}{
		"idle":                               {0, 0, 4, math.Inf(1)},
		"one client may use all processors":  {4 * one, 1, 4, math.Inf(1)},
		"half of the processors are enough":  {2 * one, 10, 4, math.Inf(1)},
		"a share of three quarters":          {2.1 * one, 10, 4, 0.3 * one},
		"a share of the use of all":          {3.5 * one, 10, 4, 0.35 * one},
		"two clients share one processor":    {one, 2, 1, 0.5 * one},
		"more is needed than there is":       {8 * one, 4, 4, 2 * one},
		"many clients on a small server":     {2 * one, 100, 2, 0.02 * one},
		"many clients on a server with room": {one, 100, 2, math.Inf(1)},
	} {
		if math.IsInf(c.want, 1) {
			require.Equal(t, c.want, fairUse(c.total, c.active, c.processors), name)
		} else {
			require.InEpsilon(t, c.want, fairUse(c.total, c.active, c.processors), 1e-9, name)
		}
	}
}

// twoProcessors returns a budget for two processors, that is for one permit, with the
// accounts of two clients. The first has used more than its share.
func twoProcessors() (b *Budget, heavy, light *Account) {
	b = New(8 << 20)
	b.processors.processors, b.processors.mu.free = 2, 1
	heavy, light = b.Open(clientNumber(1), func() {}), b.Open(clientNumber(2), func() {})
	now := time.Now()
	light.time.Load().spent.Add(int64(time.Millisecond))
	heavy.Spend(now.Add(-time.Second), now.Add(useInterval))
	return b, heavy, light
}

// While the processors are busy, a client above its share handles one batch at a time, and
// others do not wait.
func TestClientAboveItsShareOfProcessorsWaits(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, heavy, light := twoProcessors()
		require.Nil(t, light.Batch())
		first := heavy.Batch()
		require.NotNil(t, first)
		var waits atomic.Bool
		go func() {
			waits.Store(true)
			defer waits.Store(false)
			heavy.Batch().End()
		}()
		synctest.Wait()
		require.True(t, waits.Load())
		require.Nil(t, light.Batch())
		first.End()
		first.End() // is idempotent
		synctest.Wait()
		require.False(t, waits.Load())

		// A batch whose handler blocks does not keep its permit.
		heavy.Batch()
		start := time.Now()
		heavy.Batch().End()
		require.Equal(t, batchTime, time.Since(start))
	})
}

// A client that ends its connections is not forgotten before its use has decayed.
func TestUseOfProcessorsDecays(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, heavy, light := twoProcessors()
		heavy.Close()
		again := b.Open(clientNumber(1), func() {})
		require.NotNil(t, again.Batch())
		again.Close()
		time.Sleep(20 * useHalfLife)
		light.Spend(time.Now(), time.Now())
		require.Len(t, b.processors.mu.clients, 1)
		require.Nil(t, b.Open(clientNumber(1), func() {}).Batch())
	})
}

// A permit goes to the client that has used least.
func TestPermitsGoToTheClientWithTheSmallestUse(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, heavy, light := twoProcessors()
		first := heavy.Batch()
		var order []*Account
		for _, a := range []*Account{heavy, light} {
			go func() {
				ctx, _ := a.NewReservation(t.Context())
				if err := Compute(ctx, longStepBytes+1, func() { order = append(order, a) }); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		require.Empty(t, order)
		first.End()
		synctest.Wait()
		require.Equal(t, []*Account{light, heavy}, order)
	})
}

// Long steps leave one processor free, whatever their clients have used.
func TestLongStepsLeaveAProcessorFree(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		b.processors.processors, b.processors.mu.free = 4, 3
		var running, most atomic.Int64
		var steps sync.WaitGroup
		for i := range 20 {
			ctx, _ := b.Open(clientNumber(i), func() {}).NewReservation(t.Context())
			steps.Go(func() {
				err := Compute(ctx, longStepBytes+1, func() {
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(time.Second)
					running.Add(-1)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		steps.Wait()
		require.EqualValues(t, 3, most.Load())
	})
}

// A step whose request has ended does not run, and a step that panics gives its permit back.
func TestStepsThatDoNotFinish(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, heavy, light := twoProcessors()
		ctx, _ := light.NewReservation(t.Context())
		first := heavy.Batch()
		late, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		require.ErrorIs(t, Compute(late, longStepBytes+1, func() { t.Error("has run") }), context.DeadlineExceeded)
		first.End()
		require.Panics(t, func() { _ = Compute(ctx, longStepBytes+1, func() { panic("damaged") }) })
		require.Equal(t, 1, b.processors.mu.free)
		require.Empty(t, b.processors.mu.waiting)
	})
}
