package boxcarrpc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"docstore/boxcarrpc/budget"
)

// Reservations do not wait for the buffers of idle connections: the buffers of batches of
// responses are kept, and those of many responses hold more than a client's share. Before,
// all requests then waited until their deadlines.
func TestReservationsDoNotWaitForIdleBuffers(t *testing.T) {
	const callers, calls, bytes = 64, 50, 18 << 10
	for name, conns := range map[string]int{"one connection": 1, "many connections": 8} {
		t.Run(name, func(t *testing.T) {
			handler := func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
				if err := budget.Reserve(ctx, bytes); err != nil {
					return dst, err
				}
				return append(dst, make([]byte, bytes)...), nil
			}
			s := serve(t, handler, &ServerOptions{Budget: budget.New(8 << 20)})
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

// If a handler returns the error of Reserve, the request is retried on another server.
func TestAReservationThatFailsIsNotProcessed(t *testing.T) {
	account := budget.New(8<<20).Open(budget.Client{}, func() {})
	ctx, room := account.NewReservation(t.Context())
	defer room.Release()
	account.Close()
	err := budget.Reserve(ctx, 1<<20)
	require.True(t, IsNotProcessed(err))
	code, _, processed := describe(err)
	require.Equal(t, CodeResourceExhausted, code)
	require.False(t, processed)
}
