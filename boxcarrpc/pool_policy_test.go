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
	g := newGate()
	_, addresses, counts := countedServers(t, 4, g.handler)
	p := newPool(t, &PoolOptions{Size: 32, Policy: policyNamed(t, "leastrequest", nil)}, addresses...)
	defer g.release()
	until(t, "all servers are known, with as many slots each", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range p.mu.peers {
			if p.mu.ladder.Peer(int32(i)).Held != 8 {
				return false
			}
		}
		return len(p.mu.peers) == 4
	})
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		})
		<-g.entered
	}
	for i := range counts {
		require.EqualValues(t, 5, counts[i].Load(), "the fewest requests first")
	}
	g.release()
	callers.Wait()
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
