package boxcarrpc

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// announcer runs a server that announces responses of 16 MiB and sends a few bytes of each.
func announcer(t *testing.T) (address string, announced chan struct{}) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	announced = make(chan struct{}, 100)
	var slots atomic.Uint32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go announce(conn, &slots, announced)
		}
	}()
	return l.Addr().String(), announced
}

func announce(nc net.Conn, slots *atomic.Uint32, announced chan<- struct{}) {
	defer nc.Close()
	var in conn.Reader
	in.Init(nc, nil)
	if _, err := in.Next(); err != nil || !sendAll(nc, wire.AppendHello(nil, wire.Hello{MaxLanes: 100, MaxRequest: MaxRequestBytes})) {
		return
	}
	for {
		f, err := in.Next()
		if err != nil {
			return
		}
		switch f.Type {
		case wire.TypeLease:
			sendAll(nc, wire.AppendSlot(nil, wire.TypeGrant, f.Lane, slots.Add(1)-1))
		case wire.TypeRequest:
			r, _, _, _ := f.Request()
			sendAll(nc, wire.AppendResponse(nil, f.Lane, wire.FlagProcessed, wire.Response{Sequence: r.Sequence, Total: 16 << 20}, make([]byte, 1000)))
			announced <- struct{}{}
		case wire.TypePing:
			token, _ := f.Ping()
			sendAll(nc, wire.AppendPing(nil, wire.TypePong, token))
		}
	}
}

// A server that announces long responses and does not send them does not make calls to
// other servers fail. Only the received bytes are charged.
func TestAServerThatAnnouncesResponsesDoesNotFailOtherCalls(t *testing.T) {
	bad, announced := announcer(t)
	p := newPool(t, &PoolOptions{Size: 8, BufferBytes: 16 << 20, CallTimeout: time.Minute, MaxWait: time.Minute}, bad)
	full(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 8 {
		go func() { _, _ = p.Call(ctx, "m", nil, nil); done <- struct{}{} }()
	}
	for range 8 {
		<-announced
	}
	until(t, "the responses have started", func() bool { return p.members.buffers.used.Load() > 0 })
	require.LessOrEqual(t, p.members.buffers.used.Load(), int64(8*firstResponse))

	good := serve(t, echo, nil)
	p.members.follow(discovery.Snapshot{Servers: []discovery.Server{{Address: bad}, {Address: good.address}}})
	until(t, "the good server has granted a slot", func() bool { return good.Stats().Slots > 0 })
	for _, size := range []int{10, 60 << 10, 1 << 20, 4 << 20} {
		for range 20 {
			call, end := context.WithTimeout(t.Context(), 20*time.Second)
			out, err := p.Call(call, "m", make([]byte, size), nil)
			end()
			require.NoError(t, err)
			require.Len(t, out, size)
		}
	}
	cancel()
	for range 8 {
		<-done
	}
	require.Zero(t, p.members.buffers.used.Load())
}

func TestTheResponseBudget(t *testing.T) {
	m := &members{}
	m.buffers.limit = 8 << 20
	lane := func(peer *poolPeer, total uint32) *clientLane {
		return &clientLane{transport: &transport{members: m, peer: peer}, head: true, response: wire.Response{Total: total}}
	}
	one, other := &poolPeer{}, &poolPeer{}
	a, b, c := lane(one, 7<<20), lane(one, 2<<20), lane(other, 1<<20)
	a.makeRoom(7 << 20)
	require.False(t, a.overrun, "one response of any size")
	b.makeRoom(1)
	require.True(t, b.overrun, "the server holds more than half")
	c.makeRoom(1)
	require.False(t, c.overrun)
	small := lane(one, freeResponse)
	small.makeRoom(freeResponse)
	require.False(t, small.overrun, "small responses are always received")
	for _, l := range []*clientLane{a, b, c, small} {
		l.dropData()
	}
	require.Zero(t, m.buffers.used.Load())
	require.Zero(t, one.responses.Load())
	require.Zero(t, other.responses.Load())
}
