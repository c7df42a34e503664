package bounded

import (
	"time"

	"docstore/boxcarrpc/budget"
)

// grpc-go buffers the bytes of calls itself, so the budget counts them at the connection:
// bytes read are charged until no call of the connection awaits its request, and a large
// response is charged until grpc-go frees it.

// largeResponse is the size above which responses are charged until they are sent.
const largeResponse = 16 << 10

// callBytes is the memory of a call besides its message: a goroutine and a stream. It is
// charged until the request has arrived.
const callBytes = 16 << 10

const (
	// callSpent is the processor time of a call besides reading its frames, approximately.
	callSpent = 20 * time.Microsecond
	// The reader may wait for calls to end. At most this much of the time for a batch of
	// frames counts as processor time.
	batchSpent = time.Millisecond
)

// Read charges the bytes that it reads, if the Listener has CountCalls, and waits if the client
// has used more than its share of the processors.
func (c *Conn) Read(b []byte) (int, error) {
	if !c.listener.options.CountCalls {
		return c.Conn.Read(b)
	}
	c.changeReceiving(0)
	if now := time.Now(); !c.begun.IsZero() {
		c.account.Spend(now.Add(-min(now.Sub(c.begun), batchSpent)), now)
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
func (c *Conn) startBatch() {
	c.permit = c.account.Batch()
	c.begun = time.Now()
}

// changeReceiving adds to the number of calls that await their request. When it is 0, no
// bytes of requests are held.
func (c *Conn) changeReceiving(calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.receiving += calls
	switch {
	case calls > 0:
		c.account.Charge(int64(calls * callBytes))
		c.account.Await(calls * callBytes)
	case calls < 0:
		c.account.Moved(-calls * callBytes)
		c.account.Release(int64(-calls * callBytes))
	}
	if c.mu.receiving == 0 && c.mu.received > 0 {
		c.account.Release(c.mu.received)
		c.mu.received = 0
	}
}

// BeginCall records that a call begins, whose request has not arrived.
func (c *Conn) BeginCall() {
	now := time.Now()
	c.account.Spend(now, now.Add(callSpent))
	c.changeReceiving(1)
}

// EndRequest records that the request of a call has arrived, or that the call has ended
// without it.
func (c *Conn) EndRequest() { c.changeReceiving(-1) }

// A Response is the memory of the response to one call: what its handler reserves, and then
// the encoded response until it was sent or dropped.
type Response struct {
	conn   *Conn
	room   *budget.Reservation
	queued int // bytes that wait to be sent; guarded by conn.mu
}

// NewResponse makes a reservation that of the response to a call. The caller must call
// Release.
func (c *Conn) NewResponse(room *budget.Reservation) *Response {
	room.Account = c.account
	return &Response{conn: c, room: room}
}

// Queue changes the memory to that of a response of n bytes, which is about to be sent. It
// reports whether the response is charged; a small one is not. The end of the connection
// releases it.
func (r *Response) Queue(n int) bool {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if n <= largeResponse || c.mu.closed {
		r.room.Release()
		return false
	}
	r.room.Fit(n, n)
	c.account.Await(n)
	r.queued = n
	c.mu.queued[r] = struct{}{}
	return true
}

// Release releases the memory. It is idempotent.
func (r *Response) Release() {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.releaseLocked()
}

func (r *Response) releaseLocked() {
	delete(r.conn.mu.queued, r)
	r.conn.account.Moved(r.queued)
	r.queued = 0
	r.room.Release()
}
