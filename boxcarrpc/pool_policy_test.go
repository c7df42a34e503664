package boxcarrpc

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/policy"
)

func policyNamed(t testing.TB, name string, opts *policy.Options) func() policy.Policy {
	makePolicy, err := policy.ByName(name, opts)
	require.NoError(t, err)
	return makePolicy
}

// countedServers are servers that count their requests.
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

// Any policy runs a real pool: all calls are answered, by all servers, and when one
// of them stops by the others.
func TestEveryPolicyInAPool(t *testing.T) {
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) {
			servers, addresses, counts := countedServers(t, 4, echo)
			p := newPool(t, &PoolOptions{
				Size: 16, Methods: map[string]Method{"m": {Idempotent: true}},
				Policy: policyNamed(t, name, &policy.Options{Servers: 4}),
			}, addresses...)
			full(t, p)
			calls := func(n int) {
				var callers sync.WaitGroup
				for range 8 {
					callers.Go(func() {
						for range n / 8 {
							out, err := p.Call(t.Context(), "m", []byte("x"), nil)
							require.NoError(t, err)
							require.Equal(t, "x", string(out))
						}
					})
				}
				callers.Wait()
			}
			until(t, "every server has had a call", func() bool {
				calls(80)
				if name == "viamedia" { // it has as many connections as it needs
					return true
				}
				for i := range counts {
					if counts[i].Load() == 0 {
						return false
					}
				}
				return true
			})
			servers[2].stop()
			until(t, "its slots are given up", func() bool { calls(8); return p.Stats().Live == 3 })
			before := counts[2].Load()
			calls(400)
			require.Equal(t, before, counts[2].Load())
			until(t, "probes are over", func() bool { return p.Stats().Busy == 0 })
		})
	}
}

func TestAPoolFollowsItsPolicy(t *testing.T) {
	var g *gate
	var counts [4]atomic.Int64
	handler := func(server int) Handler {
		if g == nil { // in the bubble
			g = newGate()
		}
		return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
			counts[server].Add(1)
			return g.handler(ctx, method, request, dst)
		}
	}
	// On virtual time no server is suspected for a busy machine's sake.
	inTown(t, len(counts), handler, nil, func(t *testing.T, w *town) {
		p := w.pool(t, &PoolOptions{Size: 32, Policy: policyNamed(t, "leastrequest", nil)})
		until(t, "all servers are known, with as many slots each", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			for i := range p.mu.peers {
				if p.mu.ladder.Peer(int32(i)).Held != 8 {
					return false
				}
			}
			return len(p.mu.peers) == len(counts)
		})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if _, err := p.Call(t.Context(), "m", nil, nil); err != nil {
					t.Error(err)
				}
			})
			<-g.entered
		}
		for i := range counts {
			require.EqualValues(t, 5, counts[i].Load(), "the fewest requests first")
		}
		g.release()
		callers.Wait()
	})
}

func TestAServerTellsItsLoad(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	p := newPool(t, nil, s.address)
	defer g.release()
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		})
		<-g.entered
	}
	load, err := p.Call(t.Context(), MethodLoad, nil, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, binary.LittleEndian.Uint32(load))
	g.release()
	callers.Wait()
}

func TestSlotsIsWhatAPoolDoesByItself(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Policy: policyNamed(t, "slots", nil)}, s.address)
	require.Nil(t, p.mu.chooser)
}

// A pool that heeds the load keeps to a server that is
// quiet, one call at a time, and leaves it when another uses it.
func TestAPoolHeedsTheLoad(t *testing.T) {
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
	// All four have a call of another pool's, and each says so: none is better.
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
