package boxcarrpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
)

// outageGrace is that of package core.
const outageGrace = 250 * time.Millisecond

// faults makes the servers of a virtualCluster fail.
type faults struct {
	*virtualCluster
	refuse, silent [2]atomic.Bool

	mu    sync.Mutex
	conns [2][]net.Conn
}

func (f *faults) dial(ctx context.Context, address string) (net.Conn, error) {
	i := address[0] - '0'
	if f.refuse[i].Load() {
		return nil, errors.New("connection refused")
	}
	if f.silent[i].Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := f.virtualCluster.dial(ctx, address)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[i] = append(f.conns[i], conn)
	return conn, err
}

// cut ends the connections of a server.
func (f *faults) cut(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns[i] {
		conn.Close()
	}
	f.conns[i] = nil
}

// timed returns the duration and the error of a call with a deadline of 8 s.
func timed(t *testing.T, p *Pool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	start := time.Now()
	_, err := p.Call(ctx, "m", nil, nil)
	return time.Since(start), err
}

// After the last server has failed, calls wait for the grace; then they fail at once until a
// server answers. A server that recovers is used within 1.5 s.
func TestCallsFailAtOnceWhileAllServersAreDown(t *testing.T) {
	for name, silent := range map[string]bool{"servers refuse connections": false, "servers do not answer": true} {
		t.Run(name, func(t *testing.T) {
			withVirtualCluster(t, 2, echoes, nil, func(t *testing.T, w *virtualCluster) {
				f := &faults{virtualCluster: w}
				p := newPool(t, &PoolOptions{Size: 4, Dialer: f.dial}, w.addresses()...)
				full(t, p)
				set := func(down bool) {
					for i := range f.silent {
						f.silent[i].Store(down && silent)
						f.refuse[i].Store(down && !silent)
					}
				}
				for range 3 {
					set(true)
					f.cut(0)
					f.cut(1)
					synctest.Wait()
					var waiting sync.WaitGroup
					for range 3 {
						waiting.Go(func() {
							took, err := timed(t, p)
							require.ErrorIs(t, err, ErrNoServer)
							require.Equal(t, outageGrace, took)
						})
					}
					waiting.Wait()
					for range 100 {
						took, err := timed(t, p)
						require.ErrorIs(t, err, ErrNoServer)
						require.ErrorContains(t, err, "all servers are unreachable or draining (")
						require.Equal(t, CodeUnavailable, CodeOf(err))
						require.Zero(t, took)
						time.Sleep(time.Second)
					}
					set(false)
					start := time.Now()
					require.NoError(t, p.WaitReady(t.Context()))
					require.Less(t, time.Since(start), 1500*time.Millisecond+DefaultDialTimeout)
					took, err := timed(t, p)
					require.NoError(t, err)
					require.Zero(t, took)
					time.Sleep(time.Minute)
				}
				require.Zero(t, p.Stats().Rejected)
			})
		})
	}
}

// In a rolling restart of two servers the first one is up before the second one stops, but
// may still be in quarantine.
func TestARollingRestartOfTwoServersFailsNoCall(t *testing.T) {
	withVirtualCluster(t, 2, echoes, nil, func(t *testing.T, w *virtualCluster) {
		f := &faults{virtualCluster: w}
		p := newPool(t, &PoolOptions{Size: 4, Dialer: f.dial}, w.addresses()...)
		full(t, p)
		calls := func(last time.Duration) {
			t.Helper()
			for end := time.Now().Add(last); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				took, err := timed(t, p)
				require.NoError(t, err)
				require.Less(t, took, outageGrace)
			}
		}
		for i := range 20 {
			f.refuse[i%2].Store(true)
			f.cut(i % 2)
			calls(10 * time.Second)
			f.refuse[i%2].Store(false)
		}
	})
}

// A new pool waits for the source and for its first connections. A set without servers fails
// calls at once, until a server joins.
func TestANewPoolWaitsForItsServers(t *testing.T) {
	withVirtualCluster(t, 2, echoes, nil, func(t *testing.T, w *virtualCluster) {
		slow := func(ctx context.Context, address string) (net.Conn, error) {
			time.Sleep(DefaultDialTimeout / 2)
			return w.dial(ctx, address)
		}
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 4, LeaveAfter: -1, Dialer: slow}, source)
		took, err := timed(t, p)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrNoServer)
		require.Equal(t, 8*time.Second, took, "the set is not known")
		for range 3 {
			source.set <- snapshot()
			synctest.Wait()
			time.Sleep(time.Second)
			took, err = timed(t, p)
			require.ErrorIs(t, err, ErrNoServer)
			require.ErrorContains(t, err, "the source lists no server")
			require.Zero(t, took)
			source.set <- snapshot("1")
			synctest.Wait()
			took, err = timed(t, p)
			require.NoError(t, err)
			require.Equal(t, DefaultDialTimeout/2, took)
		}
	})
}

// Calls wait for a server that is reachable and has no free slot, within their contexts.
func TestCallsWaitForASlotOfAFullServer(t *testing.T) {
	withVirtualCluster(t, 1, echoes, &ServerOptions{MaxLanes: 1}, func(t *testing.T, w *virtualCluster) {
		f := &faults{virtualCluster: w}
		first := newPool(t, &PoolOptions{Size: 1, Dialer: f.dial}, "0")
		f.refuse[0].Store(true)
		second := newPoolOf(t, &PoolOptions{Size: 1, Dialer: f.dial}, discovery.Static("0"))
		time.Sleep(time.Second)
		_, err := timed(t, second)
		require.ErrorContains(t, err, "connection refused")
		f.refuse[0].Store(false)
		time.Sleep(2 * time.Second)
		took, err := timed(t, second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 8*time.Second, took)
		time.AfterFunc(time.Second, func() { _ = first.Close() })
		took, err = timed(t, second)
		require.NoError(t, err)
		require.Less(t, took, 3*time.Second) // 1 s, and a pause of up to 1.5 s between lease requests
	})
}

// Drained servers give no slots until they are restarted or undrained.
func TestCallsFailWhileAllServersAreDrained(t *testing.T) {
	withVirtualCluster(t, 2, echoes, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 4})
		for _, s := range w.servers {
			s.Drain()
		}
		synctest.Wait()
		for _, want := range []time.Duration{outageGrace, 0, 0} {
			took, err := timed(t, p)
			require.ErrorIs(t, err, ErrNoServer)
			require.ErrorIs(t, err, ErrDraining)
			require.Equal(t, want, took)
		}
		w.servers[0].Undrain()
		synctest.Wait()
		took, err := timed(t, p)
		require.NoError(t, err)
		require.Less(t, took, time.Second)
	})
}

// The error of a call names a server of the set, not one that has left it.
func TestAServerThatHasLeftIsNotTheReason(t *testing.T) {
	withVirtualCluster(t, 2, echoes, nil, func(t *testing.T, w *virtualCluster) {
		f := &faults{virtualCluster: w}
		f.refuse[1].Store(true)
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 4, Dialer: f.dial}, source)
		source.set <- snapshot("0", "1")
		full(t, p)
		w.servers[0].Drain()
		source.set <- snapshot("1")
		time.Sleep(time.Second)
		_, err := timed(t, p)
		require.ErrorIs(t, err, ErrNoServer)
		require.NotErrorIs(t, err, ErrDraining)
		require.ErrorContains(t, err, "(1: connection refused)")
	})
}
