package boxcarrpc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// countedServers starts n servers that count their requests.
func countedServers(t testing.TB, n int, h Handler) (servers []*testServer, addresses []string, counts []atomic.Int64) {
	counts = make([]atomic.Int64, n)
	for i := range n {
		s := serve(t, func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
			counts[i].Add(1)
			return h(ctx, method, request, dst)
		}, nil)
		servers, addresses = append(servers, s), append(addresses, s.address)
	}
	return servers, addresses, counts
}

// With PreferIdle one call at a time stays on one idle server, and leaves it when
// another client uses that server.
func TestPreferIdleStaysOnAnIdleServer(t *testing.T) {
	g := newGate()
	var gated atomic.Bool
	_, addresses, counts := countedServers(t, 4, func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		if method == "slow" && gated.Load() {
			return g.handler(ctx, method, request, dst)
		}
		return dst, nil
	})
	defer g.release()
	p := newPool(t, &PoolOptions{Size: 16, PreferIdle: true}, addresses...)
	full(t, p)
	call := func() (server int) {
		var before [4]int64
		for i := range counts {
			before[i] = counts[i].Load()
		}
		_, err := p.Call(t.Context(), "quick", nil, nil)
		require.NoError(t, err)
		for i := range counts {
			if counts[i].Load() > before[i] {
				server = i
			}
		}
		return server
	}
	until(t, "it keeps to one server", func() bool {
		first := call()
		for range 50 {
			if call() != first {
				return false
			}
		}
		return true
	})
	// All four have a call of another pool and report it: none is better.
	gated.Store(true)
	var callers sync.WaitGroup
	for _, address := range addresses {
		other := newPool(t, &PoolOptions{Size: 1}, address)
		callers.Go(func() { _, _ = other.Call(t.Context(), "slow", nil, nil) })
		<-g.entered
	}
	busy := 0
	for i := range counts {
		before := counts[i].Load()
		for range 50 {
			call()
		}
		if counts[i].Load() > before {
			busy++
		}
	}
	require.GreaterOrEqual(t, busy, 2)
	g.release()
	callers.Wait()
}
