package boxcarrpc

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/page"
)

// A settable is a source whose servers a test sets.
type settable struct{ set chan discovery.Snapshot }

func (s *settable) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	for {
		select {
		case snapshot := <-s.set:
			update(snapshot)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func snapshot(addresses ...string) (s discovery.Snapshot) {
	for i, a := range addresses {
		s.Servers = append(s.Servers, discovery.Server{Number: i, Address: a})
	}
	s.Numbers, s.Self = len(addresses), -1
	return s
}

func TestLadderConvergesToLowEvenSlots(t *testing.T) {
	var servers []*testServer
	var addresses []string
	for range 4 {
		s := serve(t, echo, nil)
		servers, addresses = append(servers, s), append(addresses, s.address)
	}
	pools := []*Pool{
		newPool(t, &PoolOptions{Size: 8}, addresses...),
		newPool(t, &PoolOptions{Size: 8, LanesPerConn: 1}, addresses...),
	}
	until(t, "every server has as many slots", func() bool {
		return !slices.ContainsFunc(servers, func(s *testServer) bool { return s.Stats().Slots != 4 || s.Stats().LowestFree != 4 })
	})
	for _, p := range pools {
		full(t, p)
	}
	require.GreaterOrEqual(t, pools[1].Stats().Transports, 8, "one connection for each slot")
	require.LessOrEqual(t, pools[0].Stats().Transports, 4, "many lanes on one connection")
}

// Slot numbers are scaled by the weights of the servers, which may change.
func TestSlotsAreScaledByWeight(t *testing.T) {
	withVirtualCluster(t, 2, echoes, nil, func(t *testing.T, w *virtualCluster) {
		p := w.pool(t, &PoolOptions{Size: 8})
		for _, x := range []struct {
			weights [2]float64
			slots   [2]int
		}{{[2]float64{0, 0}, [2]int{4, 4}}, {[2]float64{100, 300}, [2]int{2, 6}}, {[2]float64{1.5, 0.5}, [2]int{6, 2}}} {
			p.members.follow(discovery.Snapshot{Servers: []discovery.Server{
				{Address: "0", Weight: x.weights[0]}, {Number: 1, Address: "1", Weight: x.weights[1]},
			}})
			for range 100 { // both are trusted and report better slots
				_, err := p.Call(t.Context(), "m", nil, nil)
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			require.Equal(t, x.slots, [2]int{w.servers[0].Stats().Slots, w.servers[1].Stats().Slots})
		}
	})
}

func TestServersComeAndGo(t *testing.T) {
	a, b := serve(t, echo, nil), serve(t, echo, nil)
	source := &settable{make(chan discovery.Snapshot)}
	p := newPoolOf(t, &PoolOptions{Size: 4}, source)
	source.set <- snapshot(a.address)
	until(t, "all slots are on the only server", func() bool { return a.Stats().Slots == 4 })
	source.set <- snapshot(a.address, b.address)
	for range 100 { // b must answer a request before it gets its share
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
	}
	until(t, "the new server has its share", func() bool {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		return a.Stats().Slots == 2 && b.Stats().Slots == 2
	})
	source.set <- snapshot(b.address)
	until(t, "the old server has none", func() bool {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		return a.Stats().Slots == 0 && b.Stats().Slots == 4
	})
	require.Zero(t, p.Stats().Lost)
	source.set <- snapshot()
	until(t, "the set is empty", func() bool { return p.Stats().Servers == 0 })
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.NoError(t, err, "slots of servers that left are used until they are released")
}

func TestSlotsOfServersThatLeftAreReleasedAfterLeaveAfter(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 4, Dialer: l.dial}, source)
		source.set <- snapshot("s")
		require.NoError(t, p.WaitReady(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, 4, s.Stats().Slots)
		source.set <- snapshot()
		time.Sleep(DefaultLeaveAfter - time.Second)
		require.Equal(t, 4, s.Stats().Slots)
		time.Sleep(10 * time.Second)
		require.Zero(t, s.Stats().Slots)
		require.Zero(t, s.Stats().Connections)
		source.set <- snapshot("s")
		time.Sleep(time.Second)
		require.Equal(t, 4, s.Stats().Slots, "it is used again")
	})
}

func TestASourceThatFailsIsWatchedAgain(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		source := &failing{}
		p := newPoolOf(t, &PoolOptions{Size: 1, Dialer: l.dial}, source)
		time.Sleep(5*sourcePause + sourcePause/2)
		require.Equal(t, int32(6), source.watched.Load())
		require.NoError(t, p.WaitReady(t.Context()))
	})
}

type failing struct{ watched atomic.Int32 }

func (f *failing) Watch(_ context.Context, update func(discovery.Snapshot)) error {
	f.watched.Add(1)
	update(snapshot("s"))
	return fmt.Errorf("the registry is down")
}

// A pool without a subset may get a very large set of servers.
func TestVeryManyServers(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		source := &settable{make(chan discovery.Snapshot)}
		var many []string
		for i := range 100_000 {
			many = append(many, fmt.Sprint("s-", i))
		}
		p := newPoolOf(t, &PoolOptions{Size: 8, Dialer: l.dial}, source)
		source.set <- snapshot(many...)
		require.NoError(t, p.WaitReady(t.Context()))
		require.Equal(t, 100_000, p.Stats().Servers)
		synctest.Wait()
		require.LessOrEqual(t, len(p.view().Servers), page.MaxServers+p.Stats().Transports)
		source.set <- snapshot(many[:10]...)
		time.Sleep(2 * DefaultLeaveAfter)
		require.Equal(t, 10, p.Stats().Servers)
		p.members.mu.Lock()
		vacant := len(p.members.mu.vacant)
		p.members.mu.Unlock()
		require.Equal(t, 100_000-10, vacant)
		source.set <- snapshot(many[:20]...)
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
	})
}

func TestThePageShowsTheLadder(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, &ServerOptions{Name: "be-1 <b>", StreamHandler: streams})
	p := newPool(t, &PoolOptions{Size: 2, Name: "fe-1"}, s.address, "127.0.0.1:1")
	full(t, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = p.Call(context.Background(), "m", nil, nil)
	}()
	<-g.entered
	for range 3 {
		open(t, p, "wait")
	}
	until(t, "the dead server is in quarantine", func() bool { return p.Stats().Live == 1 })
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	page := w.Body.String()
	require.Equal(t, http.StatusOK, w.Code)
	for _, want := range []string{
		"<h1>fe-1</h1>", "2 of 2 slots, 1 busy", "3 streams", `<td class="n">2</td><td class="n">1</td><td class="n">3</td>`, "be-1 &lt;b&gt;", s.address, "127.0.0.1:1", "in quarantine: ",
		"<td>busy</td>", "<td>free</td>", "has not answered a request yet",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "<script")
	g.release()
	<-done
}

func TestAnIdleConnectionWithoutSlotsIsClosed(t *testing.T) {
	inBubble(t, echo, &ServerOptions{MaxLanes: 1}, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 1, Dialer: l.dial}, "s")
		time.Sleep(time.Second)
		q := newPoolOf(t, &PoolOptions{Size: 1, Dialer: l.dial}, discovery.Static("s")) // gets no slot
		time.Sleep(time.Minute)
		require.LessOrEqual(t, s.Stats().Accepted, uint64(12))
		require.NoError(t, p.Close())
		require.NoError(t, q.WaitReady(t.Context()))
	})
}

// The timers of a pool must not fire before NewPool has finished. The race detector sees if
// they do.
func TestTimersDoNotFireBeforeThePoolIsComplete(t *testing.T) {
	p := newPoolOf(t, nil, mute{})
	until(t, "the first liveness check has run", p.members.livenessCheckSlow.Load)
}

// A mute is a source without a snapshot.
type mute struct{}

func (mute) Watch(ctx context.Context, _ func(discovery.Snapshot)) error {
	<-ctx.Done()
	return ctx.Err()
}
