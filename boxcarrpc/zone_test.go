package boxcarrpc

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/virtualtime"
)

// zoned returns the servers 0 to n-1 of a cluster, which are in turn in the zones a, b and c.
func zoned(n int) discovery.Snapshot {
	s := discovery.Snapshot{Numbers: n, Self: 0}
	for i := range n {
		s.Servers = append(s.Servers, discovery.Server{Number: i, Address: place(i), Zone: string(rune('a' + i%3))})
	}
	return s
}

// requests returns the number of requests that the servers of a zone have received.
func (c *numberedCluster) requests(zone int) (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := zone; c.mu.servers[place(i)] != nil; i += 3 {
		n += c.mu.servers[place(i)].Stats().Requests
	}
	return n
}

// A pool uses the servers of its zone, keeps spare slots on others, uses these when its zone
// is down, and returns.
func TestAPoolUsesItsZone(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(12)...)
		source := &settable{make(chan discovery.Snapshot)}
		p := newPoolOf(t, &PoolOptions{Size: 16, Zone: "b", Dialer: c.dial}, source)
		source.set <- zoned(12)
		require.NoError(t, p.WaitReady(t.Context()))
		c.use(p, time.Second) // the first slot may be a far one
		left := p.Stats().OtherZone
		c.use(p, aMinute)
		require.Equal(t, left, p.Stats().OtherZone)
		require.Equal(t, left, c.requests(0)+c.requests(2))
		require.Less(t, left, uint64(10))
		require.Equal(t, 16, p.Stats().Slots)
		near := 0
		for i := 1; i < 12; i += 3 {
			near += c.mu.servers[place(i)].Stats().Slots
		}
		require.Equal(t, 12, near, "a quarter of the slots is spare")

		moved := zoned(12)
		for i := range moved.Servers {
			moved.Servers[i].Zone = "a"
		}
		moved.Servers[0].Zone = "b" // the zone has only one server
		source.set <- moved
		before := c.requests(0)
		c.use(p, aMinute)
		require.Greater(t, c.requests(0), before+1000)
		require.Less(t, p.Stats().OtherZone, uint64(100))
	})
}

// The subset is of the zone, with a quarter as many servers of others.
func TestASubsetIsOfTheZone(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		c := newNumberedCluster(t)
		c.start(upTo(60)...)
		p := newPoolOf(t, &PoolOptions{Size: 16, SubsetSize: 8, Zone: "b", Dialer: c.dial}, fixedSource(zoned(60)))
		require.NoError(t, p.WaitReady(t.Context()))
		c.use(p, aMinute)
		stats := p.Stats()
		require.Equal(t, []int{60, 10}, []int{stats.Known, stats.Servers})
		near, far := 0, 0
		for _, number := range c.leased() {
			if number%3 == 1 {
				near++
			} else {
				far++
			}
		}
		require.Equal(t, 8, near)
		require.LessOrEqual(t, far, 2)
		require.Positive(t, far)
		require.Less(t, stats.OtherZone, uint64(10))
	})
}

// A server says its zone when a client connects, if the source does not know it. Both sides
// show the share of requests that leave the zone.
func TestServersSayTheirZones(t *testing.T) {
	near := serve(t, echo, &ServerOptions{Zone: "eu-1a"})
	far := serve(t, echo, &ServerOptions{Zone: "eu-1b"})
	p := newPool(t, &PoolOptions{Size: 4, Zone: "eu-1a", Name: "fe-1"}, near.address, far.address)
	until(t, "three slots are near", func() bool {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		return near.Stats().Slots == 3 && far.Stats().Slots == 1
	})
	left := p.Stats().OtherZone
	for range 100 {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, p.Stats().OtherZone, left+1, "all stay but one that explores")
	require.Equal(t, p.Stats().OtherZone, far.Stats().OtherZone)
	require.Equal(t, far.Stats().Requests, far.Stats().OtherZone)
	require.Zero(t, near.Stats().OtherZone)

	board := far.Board()
	require.Equal(t, []any{"eu-1b", far.Stats().OtherZone, "eu-1a"}, []any{board.Zone, board.OtherZone, board.Slots[0].Zone})
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Regexp(t, `Zone eu-1a: \d+\.\d\d % of all attempts went to servers of other zones`, w.Body.String())
	require.Contains(t, w.Body.String(), "<td>eu-1b</td>")

	_, err := NewPool(discovery.Static(near.address), &PoolOptions{Zone: "a/b"})
	require.ErrorContains(t, err, `zone "a/b"`)
	_, err = (&ServerOptions{Zone: "a b"}).withDefaults()
	require.ErrorContains(t, err, `zone "a b"`)
}

// Streams go to servers of the zone.
func TestStreamsStayInTheZone(t *testing.T) {
	near := serve(t, echo, &ServerOptions{Zone: "a", StreamHandler: streams})
	far := serve(t, echo, &ServerOptions{Zone: "b", StreamHandler: streams})
	p := newPool(t, &PoolOptions{Size: 8, Zone: "a"}, near.address, far.address)
	until(t, "both servers are connected", func() bool { return connected(p) == 2 })
	for range 10 {
		open(t, p, "wait")
	}
	until(t, "the streams have arrived", func() bool { return near.Stats().Streams == 10 })
	require.Zero(t, far.Stats().Streams)
}
