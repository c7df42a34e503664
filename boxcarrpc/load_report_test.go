package boxcarrpc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Three of four servers have a call of another client. By slot numbers alone a client with one
// call at a time uses all four in turn.
func TestIdleServerIsUsedWhileOthersHaveCalls(t *testing.T) {
	g := newGate()
	defer g.release()
	var addresses []string
	var counts [4]atomic.Int64
	for i := range counts {
		s := serve(t, func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
			if method == "slow" {
				return g.handler(ctx, method, request, dst)
			}
			counts[i].Add(1)
			return dst, nil
		}, nil)
		addresses = append(addresses, s.address)
	}
	p := newPool(t, &PoolOptions{Size: 16}, addresses...)
	until(t, "the pool holds the lowest slots of all servers", func() bool {
		held := p.Stats()
		return held.Slots == held.Size && held.Highest < held.Size/len(addresses)
	})
	share := func() float64 {
		const calls = 400
		before := counts[3].Load()
		for range calls {
			_, err := p.Call(t.Context(), "quick", nil, nil)
			require.NoError(t, err)
		}
		return float64(counts[3].Load()-before) / calls
	}
	share() // all servers are trusted
	require.InDelta(t, 0.25, share(), 0.05)
	var callers sync.WaitGroup
	for _, address := range addresses[:3] {
		other := newPool(t, &PoolOptions{Size: 1}, address)
		callers.Go(func() { _, _ = other.Call(t.Context(), "slow", nil, nil) })
		<-g.entered
	}
	require.Greater(t, share(), 0.5)
	g.release()
	callers.Wait()
}
