package boxcarrpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"docstore/internal/virtualtime"
)

// The reservations of a client are granted in the order of their arrival, one when there is
// memory for one. Others do not wake up.
func TestReservationsAreGrantedInOrder(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := NewBudget(8 << 20)
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
		time.Sleep(budgetPatience)
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
		b := NewBudget(8 << 20)
		a := b.Open(clientNumber(1), func() { t.Error("disconnected for its own reservation") })
		require.True(t, a.TryReserve(1<<20))
		a.Await(1 << 20)
		ctx, room := a.NewReservation(t.Context())
		defer room.Release()
		start := time.Now()
		err := Reserve(ctx, 1<<20)
		require.True(t, IsNotProcessed(err))
		require.Equal(t, CodeResourceExhausted, CodeOf(err))
		require.ErrorIs(t, err, errReservationTimeout)
		require.Equal(t, maxReservationWait, time.Since(start))
		a.Moved(1 << 20)
		a.Release(1 << 20)
		require.NoError(t, Reserve(ctx, 1<<20), "the queue of reservations is empty")
	})
}

// A reservation fails when its connection ends. Those of the client's other connections
// wait on.
func TestReservationFailsWithItsConnection(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b := NewBudget(8 << 20)
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

// Reservations do not wait for the buffers of idle connections: the buffers of batches of
// responses are kept, and those of many responses hold more than a client's share. Before,
// all requests then waited until their deadlines.
func TestReservationsDoNotWaitForIdleBuffers(t *testing.T) {
	const callers, calls, bytes = 64, 50, 18 << 10
	for name, conns := range map[string]int{"one connection": 1, "many connections": 8} {
		t.Run(name, func(t *testing.T) {
			handler := func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
				if err := Reserve(ctx, bytes); err != nil {
					return dst, err
				}
				return append(dst, make([]byte, bytes)...), nil
			}
			s := serve(t, handler, &ServerOptions{Budget: NewBudget(8 << 20)})
			p := newPool(t, &PoolOptions{Size: callers, LanesPerConn: callers / conns}, s.address)
			full(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var all errgroup.Group
			for range callers {
				all.Go(func() error {
					for range calls {
						if _, err := p.Call(ctx, "", nil, nil); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, all.Wait())
			require.Zero(t, s.budget.Stats().Disconnected)
		})
	}
}
