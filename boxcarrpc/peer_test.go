package boxcarrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

// A rawConn talks to a server frame by frame.
type rawConn struct {
	net.Conn
	t  testing.TB
	in conn.Reader
}

func dialRaw(t testing.TB, address string) *rawConn {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return newRaw(t, conn)
}

func newRaw(t testing.TB, nc net.Conn) *rawConn {
	c := &rawConn{Conn: nc, t: t}
	c.in.Init(nc, nil)
	return c
}

func (c *rawConn) hello() {
	c.send(wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Name: "raw"}))
	require.Equal(c.t, wire.TypeHello, c.next().Type)
}

// lease leases lanes 0 to n-1.
func (c *rawConn) lease(n uint32) {
	for i := range n {
		c.send(wire.AppendSlot(nil, wire.TypeLease, i, wire.NoSlot))
		require.Equal(c.t, wire.TypeGrant, c.next().Type)
	}
}

func (c *rawConn) send(frames ...[]byte) {
	_, err := c.Write(bytes.Join(frames, nil))
	require.NoError(c.t, err)
}

func (c *rawConn) next() wire.Frame {
	f, err := c.in.Next()
	require.NoError(c.t, err)
	return f
}

// ends waits until the other side closes the connection.
func (c *rawConn) ends() {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	for {
		if _, err := c.in.Next(); err != nil {
			var timeout net.Error
			require.False(c.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays open")
			return
		}
	}
}

var (
	lease   = wire.AppendSlot(nil, wire.TypeLease, 0, wire.NoSlot)
	request = wire.AppendRequest(nil, 0, wire.Request{Sequence: 1, Total: 2}, "m", []byte("hi"))

	openStream  = wire.AppendOpen(nil, 0, wire.Open{Sequence: 1}, "wait", nil)
	endOfStream = wire.AppendSequence(nil, wire.TypeEnd, 0, 1)
)

func TestProtocolViolationOfClientEndsConnection(t *testing.T) {
	oversized := make([]byte, 16)
	binary.LittleEndian.PutUint32(oversized[4:], 1<<30)
	oversized[12] = byte(wire.TypeData)
	for name, c := range map[string]struct {
		hello  bool
		frames [][]byte
	}{
		"http":                    {false, [][]byte{[]byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")}},
		"no hello":                {false, [][]byte{lease}},
		"newer version":           {false, [][]byte{wire.AppendHello(nil, wire.Hello{Version: 9, OldestVersion: 8})}},
		"zeros":                   {true, [][]byte{make([]byte, 100)}},
		"oversized frame":         {true, [][]byte{oversized}},
		"second hello":            {true, [][]byte{wire.AppendHello(nil, wire.Hello{})}},
		"request without a lease": {true, [][]byte{request}},
		"data without a lease":    {true, [][]byte{wire.AppendData(nil, 0, 1, nil)}},
		"release without a lease": {true, [][]byte{wire.AppendRelease(nil, 0)}},
		"leased twice":            {true, [][]byte{lease, lease}},
		"lane too high":           {true, [][]byte{wire.AppendSlot(nil, wire.TypeLease, maxLanesPerConn, 5)}},
		"oversized request":       {true, [][]byte{lease, wire.AppendRequest(nil, 0, wire.Request{Total: MaxRequestBytes + 1}, "m", nil)}},
		"two requests":            {true, [][]byte{lease, wire.AppendRequest(nil, 0, wire.Request{Total: 9}, "m", nil), request}},
		"release while busy":      {true, [][]byte{lease, wire.AppendRequest(nil, 0, wire.Request{Total: 9}, "m", nil), wire.AppendRelease(nil, 0)}},
		"too much data":           {true, [][]byte{lease, wire.AppendRequest(nil, 0, wire.Request{Total: 2}, "m", nil), wire.AppendData(nil, 0, 0, []byte("abc"))}},
		"stream opened twice":     {true, [][]byte{openStream, openStream}},
		"stream number too high":  {true, [][]byte{wire.AppendOpen(nil, DefaultServerMaxStreams, wire.Open{}, "wait", nil)}},
		"message number too high": {true, [][]byte{wire.AppendMessage(nil, DefaultServerMaxStreams, 1, 0, nil)}},
		"message after END":       {true, [][]byte{openStream, endOfStream, wire.AppendMessage(nil, 0, 1, 0, nil)}},
		"END twice":               {true, [][]byte{openStream, endOfStream, endOfStream}},
		"more than the credit": {true, [][]byte{openStream, bytes.Repeat(wire.AppendMessage(nil, 0, 1, 0, nil),
			wire.Window/wire.MessageCost(0)+1)}},
		"credit without need":     {true, [][]byte{openStream, wire.AppendCredit(nil, 0, 1, 1)}},
		"a server's stream frame": {true, [][]byte{openStream, wire.AppendHeader(nil, 0, 1, nil)}},
		"a server's frame":        {true, [][]byte{wire.AppendSlot(nil, wire.TypeGrant, 0, 1)}},
		"flipped bit":             {true, [][]byte{append(bytes.Clone(lease[:len(lease)-1]), lease[len(lease)-1]^1)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, echo, &ServerOptions{StreamHandler: streams})
			p := newPool(t, &PoolOptions{Size: 1}, s.address)
			before := s.Stats().Faults
			conn := dialRaw(t, s.address)
			if c.hello {
				conn.hello()
			}
			conn.send(c.frames...)
			conn.ends()
			until(t, "the fault is counted and the slot reclaimed", func() bool {
				return s.Stats().Faults == before+1 && s.Stats().Slots == 1 && s.Stats().Streams == 0 && s.Stats().BufferBytes == 0
			})
			out, err := p.Call(t.Context(), "m", []byte("others are served"), nil)
			require.NoError(t, err)
			require.Equal(t, "others are served", string(out))
		})
	}
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	s := serve(t, echo, &ServerOptions{MaxConns: 2})
	for range 2 {
		dialRaw(t, s.address).hello()
	}
	c := dialRaw(t, s.address)
	c.ends()
	require.Equal(t, 2, s.Stats().Connections)
}

func TestMaxLanesBoundsTheSlots(t *testing.T) {
	s := serve(t, echo, &ServerOptions{MaxLanes: 3})
	p := newPool(t, &PoolOptions{Size: 8}, s.address)
	until(t, "all slots are granted", func() bool { return p.Stats().Slots == 3 })
	require.Equal(t, 3, s.Stats().LowestFree)
	for range 10 {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
	}
}

// inBubble runs a test with a server on pipes and virtual time.
func inBubble(t *testing.T, h Handler, opts *ServerOptions, test func(t *testing.T, s *testServer, l *pipes)) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		test(t, serveOn(t, l, h, opts), l)
	})
}

func TestAHandshakeThatNeverComesTimesOut(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		start := time.Now()
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, DefaultHandshakeTimeout, time.Since(start))
	})
}

func TestAnIdlePeerWithoutKeepAlivesTimesOut(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		start := time.Now()
		_, err = c.in.Next()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, idleTimeout, time.Since(start))
	})
}

func TestAFrameThatTricklesInTimesOut(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		start := time.Now()
		for _, b := range lease {
			if _, err = c.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.LessOrEqual(t, time.Since(start), frameTimeout+time.Second)
	})
}

func TestARequestThatNeverCompletesTimesOut(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		c.send(lease)
		require.Equal(t, wire.TypeGrant, c.next().Type)
		c.send(wire.AppendRequest(nil, 0, wire.Request{Total: 1 << 20}, "m", make([]byte, 10<<10)))
		synctest.Wait()
		require.Less(t, s.Stats().BufferBytes, int64(32<<10), "only received bytes are charged")
		require.NotZero(t, s.Stats().BufferBytes)
		start := time.Now()
		for err == nil { // keep-alives that keep the connection open
			time.Sleep(time.Second)
			if _, err = c.Write(wire.AppendPing(nil, wire.TypePing, 1)); err == nil {
				_, err = c.in.Next()
			}
		}
		require.LessOrEqual(t, time.Since(start), requestTimeout+2*stallCheck)
		synctest.Wait()
		require.Zero(t, s.Stats().BufferBytes)
		require.Zero(t, s.Stats().Slots)
	})
}

func TestAPeerThatDoesNotReadIsClosed(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		c.send(lease)
		require.Equal(t, wire.TypeGrant, c.next().Type)
		c.send(request)
		time.Sleep(DefaultWriteTimeout + time.Second)
		_, err = c.in.Next()
		require.Error(t, err)
		require.Zero(t, s.Stats().Connections)
		require.Zero(t, s.Stats().Slots)
	})
}

// A server stops reading from a peer that sends requests and reads nothing.
func TestAPeerThatDoesNotReadCostsBoundedMemory(t *testing.T) {
	inBubble(t, echo, &ServerOptions{Budget: budget.New(8 << 20)}, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		sent := 0
		for err == nil {
			var n int
			n, err = c.Write(wire.AppendPing(nil, wire.TypePing, 1))
			sent += n
		}
		require.Less(t, sent, 2<<20)
	})
}

// Requests that arrived together are not all handled while the responses to the first ones
// exceed the output limit.
func TestUnreadResponsesDelayFurtherRequests(t *testing.T) {
	const requests, bytes = 200, 1 << 20
	large := func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		return append(dst, make([]byte, bytes)...), nil
	}
	inBubble(t, large, &ServerOptions{Budget: budget.New(8 * bytes)}, func(t *testing.T, s *testServer, l *pipes) {
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		c.hello()
		go func() {
			var leases, all []byte
			for lane := range uint32(requests) {
				leases = wire.AppendSlot(leases, wire.TypeLease, lane, wire.NoSlot)
				all = wire.AppendRequest(all, lane, wire.Request{Sequence: 1, Total: 2}, "m", []byte("hi"))
			}
			sendAll(conn, leases) // the server's buffer has grown
			sendAll(conn, all)
		}()
		for range requests {
			require.Equal(t, wire.TypeGrant, c.next().Type)
		}
		synctest.Wait()
		require.LessOrEqual(t, s.Stats().Requests, uint64(3))
		require.NoError(t, conn.Close())
	})
}

// A peer chooses its name, which is shown in terminals.
func TestAPeersNameCanBePrinted(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 1, Name: "fé\x1b[2J\xff1\n"}, s.address)
	full(t, p)
	answer, err := p.Call(t.Context(), MethodBoard, nil, nil)
	require.NoError(t, err)
	var b Board
	require.NoError(t, json.Unmarshal(answer, &b))
	require.Equal(t, "fé\ufffd[2J\ufffd1\ufffd", b.Slots[0].Client)
}
