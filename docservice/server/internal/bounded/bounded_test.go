package bounded

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/internal/testseed"
)

// fromConn is a connection with an address chosen by a test.
type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

// fromClient returns a connection of client number n.
func fromClient(t *testing.T, n, port int) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	return fromConn{near, &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(n)), Port: port}}
}

func testBounds(limit int, requireCredentials bool) *Listener {
	return New(nil, Options{
		Name: "test", MaxConns: limit, ClientConns: limit / 8, RequireCredentials: requireCredentials,
		Budget: budget.New(8 << 20), Logger: slog.New(slog.DiscardHandler),
	})
}

// Where no credentials are required, the connections of an address are limited. A part of
// all connections is kept for those without a request, such as health probes.
func TestConnectionLimitPerClient(t *testing.T) {
	o := testBounds(80, false)
	port := 0
	connect := func(client int) *Conn { port++; return o.admit(fromClient(t, client, port)) }
	request := func(c *Conn) error { return c.Authenticate("") }
	silent := connect(1)
	for range 9 {
		require.NoError(t, request(connect(1)))
	}
	require.NoError(t, request(connect(1)), "it replaces the silent one")
	require.False(t, silent.present)
	require.Nil(t, connect(1), "an eighth")
	for client := 2; client < 8; client++ {
		for range 10 {
			require.NoError(t, request(connect(client)))
		}
	}
	for range 100 { // probes: each replaces the oldest one
		require.ErrorIs(t, request(connect(8)), ErrTooManyConns)
	}
	require.Len(t, o.mu.conns, 80)
	for _, c := range o.mu.conns {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	}
	require.Empty(t, o.mu.clients)
	require.Zero(t, o.mu.unauthenticated.Len())
	require.Zero(t, o.options.Budget.Stats().Used)
}

// An authenticated connection is never closed in favour of an unauthenticated one;
// unauthenticated ones replace each other.
func TestUnauthenticatedConnectionsAreReplaced(t *testing.T) {
	o := testBounds(80, true)
	port := 0
	connect := func(client int) *Conn { port++; return o.admit(fromClient(t, client, port)) }
	var authenticated []*Conn
	for client := range 69 {
		c := connect(client)
		require.NotNil(t, c)
		require.NoError(t, c.Authenticate(fmt.Sprint("client ", client)))
		authenticated = append(authenticated, c)
	}
	for n := range 500 {
		require.NotNil(t, connect(100+n%3))
		require.LessOrEqual(t, o.mu.unauthenticated.Len(), 10)
	}
	late := connect(50)
	require.NotNil(t, late)
	for range 5 { // the flood continues, and the client with the fewest stays
		connect(100)
	}
	require.NoError(t, late.Authenticate("late"))
	for _, c := range append(authenticated, late) {
		require.True(t, c.present)
	}
	probe := connect(50)
	require.ErrorIs(t, probe.Authenticate("too late"), ErrTooManyConns)
	require.False(t, probe.Authenticated())
	require.NoError(t, late.Close())
	require.NoError(t, probe.Authenticate("too late"))
}

// Authenticated connections count for their identity: hundreds of clients have one address.
func TestConnectionLimitPerIdentity(t *testing.T) {
	o := testBounds(800, true)
	for port := range 600 {
		c := o.admit(fromClient(t, 1, port))
		require.NoError(t, c.Authenticate(fmt.Sprint("client ", port%6)))
	}
	c := o.admit(fromClient(t, 2, 1))
	require.ErrorIs(t, c.Authenticate("client 0"), ErrTooManyConns)
	require.NoError(t, c.Authenticate("client 6"))
}

// The response to a call is released once, by its call or by the end of the connection.
func TestResponsesAreReleasedOnce(t *testing.T) {
	o := testBounds(80, false)
	used := func() int64 { return o.options.Budget.Stats().Used }
	c := o.admit(fromClient(t, 1, 1))
	response := func() *Response {
		room := new(budget.Reservation)
		r := c.NewResponse(room)
		require.NoError(t, budget.Reserve(context.WithValue(t.Context(), budget.ReservationKey{}, room), 256<<10))
		return r
	}
	r := response()
	require.True(t, r.Queue(512<<10))
	require.InDelta(t, 512<<10, used(), 64<<10)
	r.Release()
	require.Zero(t, used())
	r.Release()
	require.False(t, response().Queue(1<<10), "a small one")
	require.Zero(t, used())

	queued, late := response(), response()
	require.True(t, queued.Queue(1<<20))
	require.NoError(t, c.Close())
	require.False(t, late.Queue(1<<20))
	queued.Release()
	require.Zero(t, used())
}

// Connections that were opened together do not retire together.
func TestRetirementVaries(t *testing.T) {
	o := testBounds(80, false)
	start := time.Now()
	require.Zero(t, o.admit(fromClient(t, 1, 1)).Retirement())
	o.options.MaxAge = time.Hour
	seen := map[time.Duration]bool{}
	for port := range 9 {
		in := o.admit(fromClient(t, 2, 1+port)).Retirement().Sub(start).Round(time.Minute)
		require.GreaterOrEqual(t, in, 54*time.Minute)
		require.LessOrEqual(t, in, 66*time.Minute)
		seen[in] = true
	}
	require.Greater(t, len(seen), 1)
}

// Random connections stay within the limits, and an authenticated one is never replaced.
func TestRandomConnectionsStayWithinTheLimits(t *testing.T) {
	rng := testseed.Rand(t)
	for round := range 40 {
		o := testBounds(8+rng.IntN(40), round%2 == 0)
		o.options.ClientConns = 1 + rng.IntN(12)
		var open, authenticated []*Conn
		remove := func(conns []*Conn, c *Conn) []*Conn {
			return slices.DeleteFunc(conns, func(other *Conn) bool { return other == c })
		}
		for port := range 400 {
			switch rng.IntN(4) {
			case 0:
				if len(open) > 0 {
					c := open[rng.IntN(len(open))]
					require.NoError(t, c.Close())
					open, authenticated = remove(open, c), remove(authenticated, c)
				}
			case 1:
				if len(open) > 0 {
					c := open[rng.IntN(len(open))]
					var name string
					if o.options.RequireCredentials {
						name = fmt.Sprint("client ", rng.IntN(6))
					}
					if c.Authenticate(name) == nil && c.present && !slices.Contains(authenticated, c) {
						authenticated = append(authenticated, c)
					}
				}
			default:
				c := o.admit(fromClient(t, rng.IntN(6), port))
				if o.options.RequireCredentials {
					require.NotNil(t, c)
				}
				if c != nil {
					open = append(open, c)
				}
			}
			open = slices.DeleteFunc(open, func(c *Conn) bool { return !c.present }) // replaced
			require.Len(t, o.mu.conns, len(open))
			require.LessOrEqual(t, len(open), o.options.MaxConns)
			require.Equal(t, len(open)-len(authenticated), o.mu.unauthenticated.Len())
			require.LessOrEqual(t, len(authenticated), o.options.MaxConns-o.reserve())
			if o.options.RequireCredentials {
				require.LessOrEqual(t, o.mu.unauthenticated.Len(), o.reserve())
			}
			counted := 0
			for client, has := range o.mu.clients {
				counted += has.conns
				own := slices.IndexFunc(authenticated, func(c *Conn) bool { return c.client == client })
				if own >= 0 || !o.options.RequireCredentials {
					require.LessOrEqual(t, has.conns, o.options.ClientConns)
				}
			}
			require.Equal(t, len(open), counted)
			for _, c := range authenticated {
				require.True(t, c.present)
			}
		}
		for _, c := range open {
			require.NoError(t, c.Close())
		}
		require.Empty(t, o.mu.clients)
		require.Zero(t, o.options.Budget.Stats().Used)
	}
}
