package main

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

// grpc-go buffers the bytes of calls itself, so the budget counts them at the connection:
// bytes read are charged until no call of the connection awaits its request, and a large
// response is charged until as many bytes have been written after it.

// grpcLargeAnswer is the size above which responses are charged until they are sent.
const grpcLargeAnswer = 16 << 10

// grpcCallBytes is the memory of a call besides its message: a goroutine and a stream. It
// is charged until the request has arrived.
const grpcCallBytes = 16 << 10

const (
	// grpcCallSpent is the processor time of a call besides reading its frames,
	// approximately.
	grpcCallSpent = 20 * time.Microsecond
	// The reader may wait for calls to end. At most this much of the time for a batch of
	// frames counts as processor time.
	grpcBatchSpent = time.Millisecond
)

// Read charges the bytes read from a gRPC client, and waits if the client has used more
// than its share of the processors.
func (c *boundedConn) Read(b []byte) (int, error) {
	if !c.listener.grpc {
		return c.Conn.Read(b)
	}
	c.changeReceiving(0)
	if now := time.Now(); !c.begun.IsZero() {
		c.account.Spend(now.Add(-min(now.Sub(c.begun), grpcBatchSpent)), now)
	}
	c.permit.End()
	n, err := c.Conn.Read(b)
	c.startBatch()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account.Charge(int64(n))
	c.mu.received += int64(n)
	return n, err
}

// startBatch begins to measure the work for a batch of frames, or for the setup of the
// connection, and waits for a permit if the client is above its share.
func (c *boundedConn) startBatch() {
	c.permit = c.account.Batch()
	c.begun = time.Now()
}

// changeReceiving adds to the number of calls that await their request. When it is 0, no
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

// queue charges a response that is about to be written.
func (c *boundedConn) queue(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account.Charge(int64(n))
	c.account.Await(n)
	c.mu.queued += int64(n)
}

// sent releases bytes that were written.
func (c *boundedConn) sent(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.mu.queued)
	c.account.Moved(int(n))
	c.account.Release(n)
	c.mu.queued -= n
}

// grpcCounter counts the calls of a gRPC listener.
type grpcCounter struct{ listener *boundedListener }

// A grpcCall is a call; its events are sequential.
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
		now := time.Now()
		call.conn.account.Spend(now, now.Add(grpcCallSpent))
		call.receive(true)
	case *stats.InPayload, *stats.End:
		call.receive(false)
	}
}

// receive records whether the call awaits its request.
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
