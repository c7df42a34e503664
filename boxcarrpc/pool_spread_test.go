package boxcarrpc

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
)

// lanesOf returns the numbers of lanes of the pool's transports, in ascending order.
func lanesOf(p *Pool) (lanes []int) {
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	for _, t := range p.members.mu.open {
		lanes = append(lanes, t.leased)
	}
	slices.Sort(lanes)
	return lanes
}

// connected returns the number of servers to which the pool is connected.
func connected(p *Pool) (n int) {
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	for _, peer := range p.members.mu.peers {
		if peer != nil && len(peer.transports) > 0 {
			n++
		}
	}
	return n
}

// areSpread reports whether the pool has so many transports with about as many lanes each.
func areSpread(p *Pool, transports int) bool {
	lanes := lanesOf(p)
	return len(lanes) == transports && lanes[transports-1]-lanes[0] <= maxDifference
}

// callAll makes calls with responses of a size, as many at a time as the pool has slots, until the
// result is called. None may fail.
func callAll(t *testing.T, p *Pool, size int) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range p.options.Size {
		calls.Go(func() {
			for request := make([]byte, size); ctx.Err() == nil; {
				if _, err := p.Call(t.Context(), "m", request, nil); err != nil {
					t.Errorf("a call of %d bytes: %v", size, err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		calls.Wait()
	}
}

// The lanes of a server are spread over two connections, and over more while its responses are
// large. No call fails for lack of a slot meanwhile.
func TestLanesAreSpreadOverConnections(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 16}, s.address)
	full(t, p)
	until(t, "there are two connections", func() bool { return areSpread(p, 2) })
	for range 2 {
		end := callAll(t, p, 64<<10)
		until(t, "large responses have four connections", func() bool { return areSpread(p, 4) })
		end()
		end = callAll(t, p, 10)
		until(t, "small responses have two connections", func() bool { return areSpread(p, 2) })
		end()
	}
	until(t, "the server has the slots of the pool", func() bool { return s.Stats().Slots == 16 })
	require.Zero(t, p.Stats().Broken)
}

// A few lanes share a connection.
func TestFewLanesShareAConnection(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 4}, s.address)
	full(t, p)
	end := callAll(t, p, 64<<10)
	time.Sleep(10 * silenceTick)
	end()
	require.Equal(t, []int{4}, lanesOf(p))
}

// A server that allows a client one connection serves all of its lanes on it, and is not in
// quarantine.
func TestAServerThatRefusesASecondConnection(t *testing.T) {
	inBubble(t, echo, &ServerOptions{MaxConns: 1}, func(t *testing.T, _ *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 16, Dialer: l.dial}, "s")
		end := func() {}
		for range 3 {
			time.Sleep(2 * spreadPause)
			end()
			require.Equal(t, 16, p.Stats().Slots)
			require.Equal(t, 1, p.Stats().Live)
			require.Equal(t, []int{16}, lanesOf(p))
			end = func() {
				_, err := p.Call(t.Context(), "m", nil, nil)
				require.NoError(t, err)
			}
		}
	})
}

// A server without another slot keeps its lanes where they are.
func TestAServerWithoutASlotForAMove(t *testing.T) {
	s := serve(t, echo, &ServerOptions{MaxLanes: 16})
	p := newPool(t, &PoolOptions{Size: 16}, s.address)
	full(t, p)
	end := callAll(t, p, 64<<10)
	until(t, "a move was refused", func() bool {
		p.members.mu.Lock()
		defer p.members.mu.Unlock()
		return p.members.mu.peers[0].spreadAt > 0
	})
	end()
	require.Equal(t, 16, p.Stats().Slots)
	require.Zero(t, p.Stats().Broken)
}

// The lanes of a pool stay where they are once they are spread: an exchange for a lower slot does not
// make another one move. A call is outstanding, so that the pool looks at its connections often.
func TestSpreadLanesStay(t *testing.T) {
	for servers := 1; servers <= 4; servers++ {
		for size := 7; size <= 12*servers; size += crashtest.Share(2, 1) {
			var g *gate // made in the bubble
			handler := func(int) Handler {
				return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
					return g.handler(ctx, method, request, dst)
				}
			}
			withVirtualCluster(t, servers, handler, nil, func(t *testing.T, w *virtualCluster) {
				g = newGate()
				var calls sync.WaitGroup
				defer calls.Wait()
				defer g.release()
				p := w.pool(t, &PoolOptions{Size: size})
				calls.Go(func() { _, _ = p.Call(t.Context(), "m", nil, nil) })
				time.Sleep(30 * time.Second)
				before := p.Stats().Leases
				require.Less(t, before, uint64(10*size))
				time.Sleep(time.Minute)
				require.Less(t, p.Stats().Leases-before, uint64(5), "%d servers, %d slots, lanes %v", servers, size, lanesOf(p))
			})
		}
	}
}
