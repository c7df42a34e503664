//go:build unix

package conn

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

// A kernelConn calls write before each write(2).
type kernelConn struct {
	write func()
}

func (c kernelConn) Control(func(fd uintptr)) error   { panic("unused") }
func (c kernelConn) Read(func(fd uintptr) bool) error { panic("unused") }
func (c kernelConn) Write(func(fd uintptr) bool) error {
	c.write()
	return net.ErrClosed
}

// If the connection fails during write(2), the request may have reached the server.
func TestRequestCountsAsSentBeforeWrite(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	var o Outbox
	o.Init(client, nil, 0, func(error) {})
	during := false
	o.socket = &socket{conn: kernelConn{func() { during = o.Reached(0) }}}
	o.Append(wire.AppendPing(nil, 1, 1))
	o.Flush(false)
	require.True(t, during, "counted when the write began")
	require.False(t, o.Reached(0), "the kernel took nothing")
}

// The buffers of batches of many large responses are kept, also while small batches are
// sent between them: to grow them again is expensive.
func TestBuffersAreKept(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	var o Outbox
	o.Init(client, nil, 0, func(error) {})
	document := make([]byte, 20<<10) // one frame
	batches := func() {
		for _, responses := range []int{64, 1, 64} {
			for range responses {
				o.Response(0, 0, wire.Response{Total: uint32(len(document))}, nil, nil, document, nil)
			}
			_, err := o.take()
			require.NoError(t, err)
		}
	}
	batches()
	require.Zero(t, testing.AllocsPerRun(5, batches))
	require.GreaterOrEqual(t, o.Held(), 64*len(document), "charged")
	o.Shrink()
	require.Zero(t, o.Held())
}

// Reached is true for exactly those requests that the peer received at least one byte of.
func TestReachedMatchesWhatThePeerReceives(t *testing.T) {
	rng := testseed.Rand(t)
	for _, waiting := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		peer, err := ln.Accept()
		require.NoError(t, err)
		ln.Close()
		require.NoError(t, conn.(*net.TCPConn).SetWriteBuffer(32<<10))
		require.NoError(t, peer.(*net.TCPConn).SetReadBuffer(32<<10))

		var o Outbox
		o.Init(conn, nil, 0, func(err error) {
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
		if waiting {
			o.socket = nil
		}
		var tickets []uint64
		var bulk Bulk
		appended := func() int {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.mu.pending)
		}
		for appended() < 2<<20 { // until the kernel accepts no more
			data := make([]byte, rng.IntN(20<<10))
			ticket, writes := o.Request(0, wire.Request{Total: uint32(len(data))}, "m", nil, data, &bulk)
			tickets = append(tickets, ticket)
			if writes {
				o.Write(rng.IntN(2) == 0)
			}
		}
		require.Eventually(t, func() bool { return o.written.Load() > 0 }, 30*time.Second, time.Millisecond)
		Close(conn)
		o.Close()
		o.Wait()
		came, err := io.Copy(io.Discard, peer)
		require.NoError(t, err)
		Close(peer)
		reached := 0
		for i, ticket := range tickets {
			require.Equal(t, uint64(came) > ticket, o.Reached(ticket), "request %d of %d, ticket %d, %d bytes came", i, len(tickets), ticket, came)
			if o.Reached(ticket) {
				reached++
			}
		}
		require.NotZero(t, reached)
		require.Less(t, reached, len(tickets))
	}
}

// An owner counts calls of Sent. They come without the lock of the outbox.
type owner struct {
	outbox *Outbox
	sent   int
}

func (w *owner) Sent() {
	w.outbox.Below(0)
	w.sent++
}

func TestTheOwnerOfAResponseIsTold(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	var o Outbox
	o.Init(client, nil, 0, func(error) {})
	first, second, third := &owner{outbox: &o}, &owner{outbox: &o}, &owner{outbox: &o}
	respond := func(w *owner, size int) (queued bool) {
		var b Bulk
		b.InitResponse(w)
		_, queued = o.Response(0, 0, wire.Response{Total: uint32(size)}, nil, nil, make([]byte, size), &b)
		return queued
	}
	require.False(t, respond(first, 1), "copied")
	require.True(t, respond(first, 64<<10))
	_, err := o.take()
	require.NoError(t, err)
	require.Equal(t, 1, first.sent)
	require.True(t, respond(second, 1<<20))
	_, err = o.take()
	require.NoError(t, err)
	require.Zero(t, second.sent)
	o.Close()
	require.Equal(t, []int{1, 1}, []int{first.sent, second.sent})
	require.False(t, respond(third, 64<<10))
	require.Equal(t, []int{1, 1, 0}, []int{first.sent, second.sent, third.sent})
}

// A response with a few bytes more than its full frames needs one write.
func TestAShortRestEndsWithTheBatch(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	for _, size := range []int{32 << 10, 64 << 10} {
		var o Outbox
		o.Init(client, nil, 0, func(error) {})
		var b Bulk
		o.Response(0, 0, wire.Response{Total: uint32(size)}, nil, nil, make([]byte, size), &b)
		batch, err := o.take()
		require.NoError(t, err)
		require.Greater(t, len(batch), size)
		batch, err = o.take()
		require.NoError(t, err)
		require.Empty(t, batch)
	}
}
