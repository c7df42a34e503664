package boxcarrpc

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

// grab takes all that a server gives: connections, slots and streams. It returns what it
// has got.
func grab(t *testing.T, dial func(context.Context, string) (net.Conn, error), conns, lanes, streams uint32) (gotConns, gotSlots, gotStreams int) {
	for range conns {
		conn, err := dial(t.Context(), "s")
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		c := newRaw(t, conn)
		if _, err := conn.Write(hostileHello); err != nil {
			continue
		}
		if _, err := c.in.Next(); err != nil {
			continue
		}
		gotConns++
		for lane := range lanes {
			c.send(wire.AppendSlot(nil, wire.TypeLease, lane, wire.NoSlot))
			if c.next().Type == wire.TypeGrant {
				gotSlots++
			}
		}
		for number := range streams {
			c.send(wire.AppendOpen(nil, number, wire.Open{Sequence: 1}, "wait", nil), wire.AppendPing(nil, wire.TypePing, 1))
			if c.next().Type == wire.TypeStatus {
				require.Equal(t, wire.TypePong, c.next().Type)
			} else {
				gotStreams++
			}
		}
	}
	return gotConns, gotSlots, gotStreams
}

// One client cannot take all slots, streams and connections of a server, and a newcomer
// gets what it needs at once.
func TestOneClientDoesNotTakeAllSlots(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		wait := func(ctx context.Context, _ string, _ *ServerStream) error { <-ctx.Done(); return ctx.Err() }
		s := serveOn(t, l, echo, &ServerOptions{MaxConns: 1600, MaxLanes: 16 << 10, MaxStreams: 1600, StreamHandler: wait})
		conns, slots, streams := grab(t, l.dialFrom("10.0.0.1"), 210, 80, 5)
		require.Equal(t, 200, conns, "an eighth")
		require.Equal(t, 2<<10, slots)
		require.Equal(t, 200, streams)
		require.Equal(t, uint64(800), s.Stats().RefusedBy["client_streams"])

		p := newPool(t, &PoolOptions{Size: 64, Dialer: l.dialFrom("10.0.0.2")}, "s")
		full(t, p)
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		stream, err := p.Stream(t.Context(), "m", nil)
		require.NoError(t, err)
		stream.Close()
	})
}

// What has been given back can be had again, and nothing is kept of a client that has gone.
func TestAClientsShareIsGivenBack(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{MaxLanes: 2 << 10, ClientShare: 0.5})
		for round := range 3 {
			conn, err := l.dial(t.Context(), "s")
			require.NoError(t, err)
			c := newRaw(t, conn)
			c.hello()
			for lane := range uint32(1 << 10) {
				c.send(wire.AppendSlot(nil, wire.TypeLease, lane, wire.NoSlot))
				require.Equal(t, wire.TypeGrant, c.next().Type, fmt.Sprint(round, lane))
			}
			require.NoError(t, conn.Close())
			until(t, "the connection has gone", func() bool { return s.Stats().Slots == 0 && s.Stats().Connections == 0 })
		}
		require.Empty(t, s.shares.clients)
	})
}

// A client that proves who it is has the share of its identity, not of its address.
func TestSharesGoByIdentity(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{
			MaxConns: 1 << 10, ClientShare: 0.001,
			Authenticate: func(_ *Peer, token string) (string, error) { return token, nil },
		})
		dial := l.dialFrom("10.0.0.1")
		for i := range 3 * leastConns {
			conn, err := dial(t.Context(), "s")
			require.NoError(t, err)
			defer conn.Close()
			c := newRaw(t, conn)
			c.send(wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Token: fmt.Sprint("client ", i%3)}))
			require.Equal(t, wire.TypeHello, c.next().Type)
		}
		require.Len(t, s.shares.clients, 3)
		conn, err := dial(t.Context(), "s")
		require.NoError(t, err)
		defer conn.Close()
		c := newRaw(t, conn)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Second)))
		c.send(wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Token: "client 0"}))
		require.Equal(t, wire.TypeGoAway, c.next().Type)
	})
}
