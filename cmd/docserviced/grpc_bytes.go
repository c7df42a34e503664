package main

import (
	"context"

	"google.golang.org/grpc/stats"
)

// grpc-go buffers the bytes of calls itself, so the budget counts them where they enter and
// leave a connection: bytes that are read are held until no call of the
// connection awaits its request, and a large answer is held until as many bytes have been
// written after it.

// grpcLargeAnswer is the size above which answers are counted until they are sent.
const grpcLargeAnswer = 16 << 10

// grpcCallBytes is what a call takes besides its message: a goroutine and a stream. It is
// charged while the client has not sent the request.
const grpcCallBytes = 16 << 10

// Read counts what it reads from a gRPC client.
func (c *boundedConn) Read(b []byte) (int, error) {
	if !c.listener.grpc {
		return c.Conn.Read(b)
	}
	c.changeReceiving(0)
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account.Charge(int64(n))
	c.mu.received += int64(n)
	return n, err
}

// changeReceiving changes how many calls await their requests. When there are none, no
// bytes of requests are held.
func (c *boundedConn) changeReceiving(calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.receiving += calls
	switch {
	case calls > 0:
		c.account.Charge(int64(calls * grpcCallBytes))
		c.account.Await(calls * grpcCallBytes)
	case calls < 0:
		c.account.Moved(-calls * grpcCallBytes)
		c.account.Release(int64(-calls * grpcCallBytes))
	}
	if c.mu.receiving == 0 && c.mu.received > 0 {
		c.account.Release(c.mu.received)
		c.mu.received = 0
	}
}

// queue counts an answer that is about to be written.
func (c *boundedConn) queue(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account.Charge(int64(n))
	c.account.Await(n)
	c.mu.queued += int64(n)
}

// sent notes that bytes were written.
func (c *boundedConn) sent(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.mu.queued)
	c.account.Moved(int(n))
	c.account.Release(n)
	c.mu.queued -= n
}

// grpcCounter follows the calls of a gRPC listener.
type grpcCounter struct{ listener *boundedListener }

// A grpcCall is a call; its events come one after another.
type grpcCall struct {
	conn      *boundedConn
	receiving bool
}

type grpcCallKey struct{}

func (g *grpcCounter) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if c := g.listener.find(info.RemoteAddr); c != nil {
		return withConn(ctx, c)
	}
	return ctx
}

func (g *grpcCounter) HandleConn(context.Context, stats.ConnStats) {}

func (g *grpcCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, grpcCallKey{}, &grpcCall{conn: connOf(ctx)})
}

func (g *grpcCounter) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, _ := ctx.Value(grpcCallKey{}).(*grpcCall)
	if call == nil || call.conn == nil {
		return
	}
	switch event.(type) {
	case *stats.Begin:
		call.receive(true)
	case *stats.InPayload, *stats.End:
		call.receive(false)
	}
}

// receive notes whether the call awaits its request.
func (c *grpcCall) receive(now bool) {
	switch {
	case now == c.receiving:
	case now:
		c.conn.changeReceiving(1)
	default:
		c.conn.changeReceiving(-1)
	}
	c.receiving = now
}
