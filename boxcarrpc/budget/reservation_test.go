package budget

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// The reservations of a client are granted in the order of their arrival, one when there is
// memory for one. Others do not wake up.
func TestReservationsAreGrantedInOrder(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		a := b.Open(clientNumber(1), func() {})
		require.True(t, a.TryReserve(1<<20))
		var order []int
		for i := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if a.Reserve(ctx, 1<<20) == nil {
					order = append(order, i)
				}
			}()
			synctest.Wait()
			if i == 1 {
				cancel()
			}
			defer cancel()
		}
		require.False(t, a.TryReserve(1), "others wait")
		for _, want := range [][]int{{0}, {0, 2}, {0, 2, 3}} {
			a.Release(1 << 20)
			synctest.Wait()
			require.Equal(t, want, order)
		}
		a.Release(1 << 20)
		require.Zero(t, b.Stats().Used)
		time.Sleep(patience)
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.mu.waiting)
		require.Nil(t, b.mu.timer)
	})
}

// A wait for memory ends although the response that holds it is never read and the call has
// no deadline.
func TestReservationWaitEnds(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		a := b.Open(clientNumber(1), func() { t.Error("disconnected for its own reservation") })
		require.True(t, a.TryReserve(1<<20))
		a.Await(1 << 20)
		ctx, room := a.NewReservation(t.Context())
		defer room.Release()
		start := time.Now()
		err := Reserve(ctx, 1<<20)
		var noMemory *NoMemoryError
		require.ErrorAs(t, err, &noMemory)
		require.ErrorIs(t, err, errReservationTimeout)
		require.Equal(t, maxReservationWait, time.Since(start))
		a.Moved(1 << 20)
		a.Release(1 << 20)
		require.NoError(t, Reserve(ctx, 1<<20), "the queue of reservations is empty")
	})
}

// TestResponseGrows: one response of a client may exceed its share, and not wait for first reservations.
// Others wait until it is sent, or fits into one frame.
func TestResponseGrows(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20) // a client's share is 1 MiB
		idle, one, two := b.Open(clientNumber(1), func() {}), b.Open(clientNumber(1), func() {}), b.Open(clientNumber(1), func() {})
		idle.Charge(600 << 10)
		ctx, first := one.NewReservation(t.Context())
		require.NoError(t, Reserve(ctx, 200<<10))
		other, second := two.NewReservation(t.Context())
		require.NoError(t, Reserve(other, 500<<10))
		start := time.Now()
		waits := make(chan error)
		go func() { waits <- two.Reserve(t.Context(), 1) }()
		synctest.Wait()
		require.NoError(t, Reserve(ctx, 201<<10))
		require.True(t, TryReserve(ctx, 20<<20), "a response of any size")
		require.False(t, TryReserve(other, 501<<10), "another one exceeds the share")
		grown := make(chan error)
		go func() { grown <- Reserve(other, 501<<10) }()
		synctest.Wait()
		first.Fit(10, 10)
		require.NoError(t, <-grown)
		require.False(t, TryReserve(ctx, 20<<10), "it has no bytes any more")
		second.Release()
		require.NoError(t, <-waits)
		require.Zero(t, time.Since(start))
	})
}

// TestGrowingResponsesEnd: responses of a few clients grow step by step, until they exceed the shares and
// the budget together. Their buffers are larger than what was reserved, and idle connections hold most of
// the shares. None waits for another that waits for it.
func TestGrowingResponsesEnd(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		rng := testseed.Rand(t)
		b := New(8 << 20)
		clients, size := 1+rng.IntN(12), largeAnswer<<rng.IntN(7)
		open := func(client int) *Account {
			return b.Open(clientNumber(client), func() { t.Error("disconnected") })
		}
		var idle []*Account
		for client := range rng.IntN(min(clients, 5) + 1) { // together less than the budget
			idle = append(idle, open(client))
			idle[client].Charge(b.share / 4 * 3)
		}
		var responses sync.WaitGroup
		for range 100 {
			a := open(rng.IntN(clients))
			for range 1 + rng.IntN(3) {
				sizes := make([]int, 1+rng.IntN(5))
				for i := range sizes {
					sizes[i] = 1 + rng.IntN(size)
				}
				pause := time.Duration(rng.IntN(3)) * time.Millisecond
				responses.Go(func() {
					ctx, r := a.NewReservation(t.Context())
					for total, n := 0, 0; n < len(sizes); n++ {
						total += sizes[n]
						if err := Reserve(ctx, total); err != nil {
							t.Error(err)
						}
						r.Fit(total, total+total/8)
						time.Sleep(pause)
					}
					r.Release()
				})
			}
		}
		responses.Wait()
		for _, a := range idle {
			a.Release(b.share / 4 * 3)
		}
		require.Zero(t, b.Stats().Used)
	})
}

// A reservation fails when its connection ends. Those of the client's other connections
// wait on.
func TestReservationFailsWithItsConnection(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := New(8 << 20)
		full, one, two := b.Open(clientNumber(1), func() {}), b.Open(clientNumber(1), func() {}), b.Open(clientNumber(1), func() {})
		require.True(t, full.TryReserve(1<<20))
		ends := make(chan error, 2)
		go func() { ends <- one.Reserve(t.Context(), 1) }()
		synctest.Wait()
		go func() { ends <- two.Reserve(t.Context(), 1) }()
		synctest.Wait()
		one.Close()
		require.ErrorIs(t, <-ends, errReservationClosed)
		synctest.Wait()
		require.Empty(t, ends)
		full.Release(1 << 20)
		require.NoError(t, <-ends)
	})
}

// TestNothingIsReservedAfterTheResponse: a goroutine of a handler outlives the response.
func TestNothingIsReservedAfterTheResponse(t *testing.T) {
	b := New(1 << 30)
	a := b.Open(clientNumber(1), func() {})
	for _, size := range []int{0, largeAnswer + 1} {
		ctx, r := a.NewReservation(t.Context())
		require.NoError(t, Reserve(ctx, size))
		r.Release()
		var none *NoMemoryError
		require.ErrorAs(t, Reserve(ctx, largeAnswer+1), &none)
		require.False(t, TryReserve(ctx, largeAnswer+1))
		Hold(ctx, largeAnswer+1)
		r.Release()
		require.Zero(t, a.used.Load())
		require.Zero(t, b.messages.Load())
	}
}

// TestReserveWhileTheResponseIsSent releases a reservation while a goroutine of its handler
// reserves memory: nothing stays charged.
func TestReserveWhileTheResponseIsSent(t *testing.T) {
	b := New(1 << 30)
	a := b.Open(clientNumber(1), func() {})
	for range 2000 {
		ctx, r := a.NewReservation(t.Context())
		var stray sync.WaitGroup
		stray.Go(func() { _ = Reserve(ctx, largeAnswer+1) })
		r.Fit(10, 10)
		r.Release()
		stray.Wait()
	}
	require.Zero(t, a.used.Load())
	require.Zero(t, b.messages.Load())
}
