package boxcarrpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/subset"
	"docstore/internal/virtualtime"
)

// A numberedCluster is a set of numbered servers on pipes, for tests on virtual time.
type numberedCluster struct {
	t  *testing.T
	mu struct {
		sync.Mutex
		servers map[string]*testServer
		doors   map[string]*pipes
		dialled map[string]int
	}
}

func newNumberedCluster(t *testing.T) *numberedCluster {
	c := &numberedCluster{t: t}
	c.mu.servers, c.mu.doors, c.mu.dialled = map[string]*testServer{}, map[string]*pipes{}, map[string]int{}
	return c
}

func (c *numberedCluster) start(numbers ...int) { c.startWith(nil, numbers...) }

func (c *numberedCluster) startWith(opts *ServerOptions, numbers ...int) {
	for _, n := range numbers {
		door := newPipes()
		s := serveOn(c.t, door, echo, opts)
		c.mu.Lock()
		c.mu.servers[place(n)], c.mu.doors[place(n)] = s, door
		c.mu.Unlock()
	}
}

func (c *numberedCluster) stop(numbers ...int) {
	for _, n := range numbers {
		c.mu.Lock()
		s := c.mu.servers[place(n)]
		delete(c.mu.servers, place(n))
		delete(c.mu.doors, place(n))
		c.mu.Unlock()
		s.stop()
	}
}

func place(n int) string { return fmt.Sprint("be-", n) }

func (c *numberedCluster) dial(ctx context.Context, address string) (net.Conn, error) {
	c.mu.Lock()
	door := c.mu.doors[address]
	c.mu.dialled[address]++
	c.mu.Unlock()
	if door == nil {
		return nil, fmt.Errorf("no listener on %s", address)
	}
	return door.dial(ctx, address)
}

// dialled returns the servers that were dialled since the last call.
func (c *numberedCluster) dialled() (numbers []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range 1000 {
		if c.mu.dialled[place(n)] > 0 {
			numbers = append(numbers, n)
		}
	}
	clear(c.mu.dialled)
	return numbers
}

// connected returns the servers with connections.
func (c *numberedCluster) connected() (numbers []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range 1000 {
		if s := c.mu.servers[place(n)]; s != nil && s.Stats().Connections > 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// leased returns the servers that have granted slots.
func (c *numberedCluster) leased() (numbers []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range 1000 {
		if s := c.mu.servers[place(n)]; s != nil && s.Stats().Slots > 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// use makes calls for a while; none may fail.
func (c *numberedCluster) use(p *Pool, during time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, err := p.Call(c.t.Context(), "m", nil, nil)
		require.NoError(c.t, err)
	}
}

func numbered(self, numbers int, holes ...int) discovery.Snapshot {
	s := discovery.Snapshot{Numbers: numbers, Self: self, Frontends: 100}
	for n := range numbers {
		if !slices.Contains(holes, n) {
			s.Servers = append(s.Servers, discovery.Server{Number: n, Address: place(n)})
		}
	}
	return s
}

func chosen(t *testing.T, name string, self, backends, k int) []int {
	a, err := subset.ByName(name, nil)
	require.NoError(t, err)
	list := a.Subset(nil, self, 100, backends, k)
	slices.Sort(list)
	return list
}

// enough for a change to complete
const aMinute = time.Minute

func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestPoolFollowsItsSubsetWithLittleChurn(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(41)...)
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 12, SubsetSize: 6, Dialer: c.dial}, source)
		self := 7
		for _, numbers := range []int{40, 41, 40, 30} {
			before := c.connected()
			want := chosen(t, "rocksteadier", self, numbers, 6)
			source.set <- numbered(self, numbers)
			require.NoError(t, p.WaitReady(t.Context()))
			c.use(p, aMinute)
			require.Equal(t, want, c.connected())
			require.ElementsMatch(t, slices.DeleteFunc(slices.Clone(want), func(n int) bool { return slices.Contains(before, n) }),
				c.dialled(), "new connections, and no others")
		}
		require.Equal(t, []int{30, 6}, []int{p.Stats().Known, p.Stats().Servers})
		require.Equal(t, 12, p.Stats().Slots)
		require.Zero(t, p.Stats().Broken)
	})
}

// A change replaces nine tenths of a deterministic subset. A pool with one request at a
// time has moved long before LeaveAfter.
func TestIdlePoolFollowsALargeSubsetChange(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(61)...)
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 40, SubsetSize: 20, Subset: mustByName(t, "deterministic"), Dialer: c.dial}, source)
		source.set <- numbered(5, 60)
		require.NoError(t, p.WaitReady(t.Context()))
		// A server that got no LEASE while slots were missing gets few later: in one of 200
		// pools it takes minutes until the last one is connected.
		for begin := time.Now(); !slices.Equal(chosen(t, "deterministic", 5, 60, 20), c.connected()); {
			c.use(p, time.Second)
			require.Less(t, time.Since(begin), time.Hour)
		}
		source.set <- numbered(5, 61)
		c.use(p, 5*time.Second)
		require.Equal(t, chosen(t, "deterministic", 5, 61, 20), c.leased())
		require.Equal(t, 40, p.Stats().Slots)
	})
}

func TestPoolSkipsUnusedNumbersAndKeepsServersThatAreDown(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(20)...)
		source := &settable{make(chan discovery.Snapshot)}
		a, err := subset.ByName("ringsteady", nil)
		require.NoError(t, err)
		p := newPoolOf(t, &PoolOptions{Size: 8, SubsetSize: 4, Subset: a, Dialer: c.dial}, source)
		order := a.Subset(nil, 3, 100, 20, 5)
		source.set <- numbered(3, 20, order[1])
		require.NoError(t, p.WaitReady(t.Context()))
		c.use(p, aMinute)
		want := []int{order[0], order[2], order[3], order[4]}
		slices.Sort(want)
		require.Equal(t, want, c.connected())

		c.stop(order[0], order[2])
		c.dialled()
		c.use(p, aMinute)
		require.Equal(t, 4, p.Stats().Servers)
		for _, n := range c.dialled() {
			require.Contains(t, want, n)
		}
		c.start(order[0], order[2])
		c.use(p, aMinute)
		require.Equal(t, want, c.connected())
	})
}

func TestAPoolBorrowsWhenItsSubsetIsDead(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(30)...)
		order := mustByName(t, "rocksteadier").Subset(nil, 9, 0, 30, 12)
		p := newPoolOf(t, &PoolOptions{Size: 6, SubsetSize: 3, Dialer: c.dial,
			Methods: map[string]Method{"m": {Idempotent: true}}}, discovery.WithSelf(discovery.Pattern("be-%d", 30), 9, 0))
		require.NoError(t, p.WaitReady(t.Context()))
		c.use(p, aMinute)
		sorted := func(from, to int) []int {
			list := slices.Clone(order[from:to])
			slices.Sort(list)
			return list
		}
		require.Equal(t, sorted(0, 3), c.connected())

		c.stop(order[:3]...)
		c.use(p, aMinute) // no call fails meanwhile
		require.Equal(t, sorted(3, 6), c.connected())
		require.True(t, p.Stats().Borrowed)
		c.stop(order[3:6]...)
		c.use(p, aMinute)
		require.Equal(t, sorted(6, 9), c.connected())
		c.stop(order[6:9]...)
		c.dialled()
		ctx, cancel := context.WithTimeout(t.Context(), aMinute)
		defer cancel()
		_, err := p.Call(ctx, "m", nil, nil)
		require.ErrorIs(t, err, ErrNoServer)
		require.Equal(t, sorted(0, 9), c.dialled(), "never the whole set")

		c.start(order[:9]...)
		require.NoError(t, p.WaitReady(t.Context()))
		c.use(p, 2*aMinute)
		require.Equal(t, sorted(0, 3), c.connected())
		require.False(t, p.Stats().Borrowed)
	})
}

// Another client holds all slots of the subset's servers.
func TestAPoolBorrowsWhenItsSubsetIsFull(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		order := mustByName(t, "rocksteadier").Subset(nil, 9, 0, 30, 6)
		own, borrowed := order[:3], order[3:]
		c.startWith(&ServerOptions{MaxLanes: 2}, own...)
		c.start(borrowed...)
		other := newPoolOf(t, &PoolOptions{Size: 6, Dialer: c.dial}, discovery.Static(place(own[0]), place(own[1]), place(own[2])))
		time.Sleep(time.Second)
		require.Equal(t, 6, other.Stats().Slots)

		p := newPoolOf(t, &PoolOptions{Size: 6, SubsetSize: 3, Dialer: c.dial}, discovery.WithSelf(discovery.Pattern("be-%d", 30), 9, 0))
		time.Sleep(2 * time.Second)
		require.Equal(t, 6, p.Stats().Slots)
		require.True(t, p.Stats().Borrowed)
		c.use(p, aMinute)

		require.NoError(t, other.Close())
		time.Sleep(20 * aMinute) // lease requests of a full pool are rare
		c.use(p, aMinute)
		require.Equal(t, 6, p.Stats().Slots)
		require.False(t, p.Stats().Borrowed)
		slices.Sort(own)
		require.Equal(t, own, c.connected())
	})
}

func mustByName(t *testing.T, name string) subset.Algorithm {
	a, err := subset.ByName(name, nil)
	require.NoError(t, err)
	return a
}

func TestAPoolWithoutANumberOfItsOwn(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(50)...)
		connect := func(o PoolOptions) []int {
			o.Size, o.SubsetSize, o.Dialer = 10, 5, c.dial
			p := newPoolOf(t, &o, discovery.Pattern("be-%d", 50))
			require.NoError(t, p.WaitReady(t.Context()))
			c.use(p, aMinute)
			require.NoError(t, p.Close())
			synctest.Wait()
			list := c.dialled()
			require.Len(t, list, 5)
			return list
		}
		byName := connect(PoolOptions{Name: "fe-a"})
		require.Equal(t, byName, connect(PoolOptions{Name: "fe-a"}), "the same after a restart")
		require.NotEqual(t, byName, connect(PoolOptions{Name: "fe-b"}))
		require.NotEqual(t, connect(PoolOptions{Seed: 1}), connect(PoolOptions{Seed: 2}), "two instances of a program")
	})
}

// A new server that accepts connections and fails every call does not replace the slots of
// servers that left: they are used until LeaveAfter.
func TestOldSlotsStayUntilNewOnesHaveSucceeded(t *testing.T) {
	for name, leaveAfter := range map[string]time.Duration{"make before break": 0, "break at once": -1} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				c := newNumberedCluster(t)
				c.start(0, 1)
				broken := newPipes()
				serveOn(t, broken, func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
					return dst, &Error{Code: CodeInternal, Message: "the disk is gone"}
				}, nil)
				c.mu.doors[place(2)], c.mu.doors[place(3)] = broken, broken
				source := &settable{make(chan discovery.Snapshot)}
				p := newPoolOf(t, &PoolOptions{Size: 8, LeaveAfter: leaveAfter, Dialer: c.dial}, source)
				source.set <- numbered(0, 2)
				require.NoError(t, p.WaitReady(t.Context()))
				c.use(p, aMinute)
				source.set <- numbered(0, 4, 0, 1)
				synctest.Wait()
				if leaveAfter < 0 {
					require.Empty(t, c.connected())
					return
				}
				answered := 0
				for range 100 {
					time.Sleep(DefaultLeaveAfter / 101)
					if _, err := p.Call(t.Context(), "m", nil, nil); err == nil {
						answered++
					}
				}
				require.Greater(t, answered, 50)
				require.Equal(t, []int{0, 1}, c.connected())
				time.Sleep(DefaultLeaveAfter)
				require.Empty(t, c.connected())
			})
		})
	}
}

// With a server number of 100,000, each choice took eleven seconds under the pool's lock.
// Such a snapshot is rejected and the previous one is kept.
func TestSnapshotWithLargeGapsIsRejected(t *testing.T) {
	sparse := discovery.Snapshot{Numbers: 100_001, Self: -1, Servers: []discovery.Server{
		{Number: 0, Address: "be-0:7070"}, {Number: 100_000, Address: "be-100000:7070"},
	}}
	o, err := (&PoolOptions{SubsetSize: 20}).withDefaults()
	require.NoError(t, err)
	s := newSubset(&o, 1)
	require.NoError(t, s.Follow(numbered(3, 100)))
	var tooHigh *discovery.NumberError
	require.ErrorAs(t, s.Follow(sparse), &tooHigh)
	require.Equal(t, discovery.NumberError{Source: "number given for be-100000:7070", Number: 100_000, Limit: discovery.Limit(2)}, *tooHigh)
	own, _ := s.Choose()
	require.Len(t, own, 20, "of the previous snapshot")

	p := newPoolOf(t, &PoolOptions{SubsetSize: 20}, fixedSource(sparse))
	until(t, "the snapshot is rejected", func() bool {
		p.members.mu.Lock()
		defer p.members.mu.Unlock()
		return p.members.mu.sourceFailure != nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Call(ctx, "m", nil, nil)
	require.ErrorContains(t, err, "be-100000:7070")
}

// A fixedSource reports one snapshot.
type fixedSource discovery.Snapshot

func (s fixedSource) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	update(discovery.Snapshot(s))
	<-ctx.Done()
	return ctx.Err()
}

func TestSubsetOptions(t *testing.T) {
	o, err := (&PoolOptions{Subset: mustByName(t, "random")}).withDefaults()
	require.NoError(t, err)
	require.Equal(t, DefaultSubsetSize, o.SubsetSize)
	_, err = (&PoolOptions{SubsetSize: -1}).withDefaults()
	require.ErrorContains(t, err, "SubsetSize is -1")
}
