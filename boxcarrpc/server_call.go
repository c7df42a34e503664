package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// smallRequest is the size up to which requests are not limited by the budget or counted in
// statistics.
const smallRequest = 4 << 10

type laneState uint8

const (
	laneIdle      laneState = iota
	laneReceiving           // a part of a request was received
	laneRunning             // its handler runs or waits for a worker
)

// A serverLane is a leased lane of a connection and the request on it. It is guarded by the
// connection's mutex, except that the request belongs to the worker while the state is
// laneRunning.
type serverLane struct {
	conn   *serverConn
	number uint32
	slot   int32
	leased time.Time
	state  laneState

	requests uint64
	period   uint32 // used by core.Pipeline
	errors   uint64 // of these, answered with an error

	sequence uint32
	method   *method
	total    uint32 // size of the request
	request  *[]byte
	batch    bool  // its priority
	metadata int   // size of the metadata
	charged  int64 // bytes charged to the account
	began    time.Time
	ctx      *callContext
}

// request handles a REQUEST.
func (c *serverConn) request(f wire.Frame) error {
	r, method, data, err := f.Request()
	if err != nil {
		return err
	}
	if limit := c.server.options.MaxRequestBytes; int64(r.Total) > int64(limit) {
		return protocolError("request of %d bytes, at most %d are allowed", r.Total, limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lane := c.laneLocked(f.Lane)
	if lane == nil || lane.state != laneIdle {
		return protocolError("REQUEST on lane %d, which is not leased and idle", f.Lane)
	}
	lane.sequence, lane.total = r.Sequence, r.Total
	lane.requests++
	c.turn.pipeline.Request(&lane.period)
	var metadata Metadata
	if f.Flags&wire.FlagMetadata != 0 {
		metadata = f.RequestMetadata()
	}
	lane.batch = metadata.isBatch()
	if why := c.admitLocked(lane.batch); why != admitted {
		c.refuse(lane, why)
		return nil
	}
	if int(r.Total) > smallRequest && !c.account.BelowShare(0) {
		c.server.gate.Leave()
		c.refuse(lane, refusedBuffers)
		return nil
	}
	lane.method = c.methodNamed(method)
	lane.request, lane.metadata = requestBuffer(int(r.Total)), len(metadata)
	*lane.request = append(*lane.request, data...)
	c.account.Await(int(r.Total) - len(data))
	lane.charge()
	lane.ctx = &callContext{peer: c.peer, slot: lane.slot, batch: lane.batch, reservation: budget.Reservation{Account: c.account}}
	if metadata != nil {
		lane.ctx.extra = &callExtra{metadata: slices.Clone(metadata)}
	}
	lane.began = c.turn.clock
	if r.Budget > 0 {
		lane.ctx.deadline = lane.began.Add(r.Budget)
	}
	c.startIfComplete(lane)
	return nil
}

// data handles a DATA frame: more of a request. It ignores frames of a request that was
// refused or cancelled.
func (c *serverConn) data(f wire.Frame) error {
	sequence, data, err := f.Data()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lane := c.laneLocked(f.Lane)
	switch {
	case lane == nil:
		return protocolError("DATA on lane %d, which is not leased", f.Lane)
	case lane.state != laneReceiving || lane.sequence != sequence:
		return nil
	case uint64(len(*lane.request))+uint64(len(data)) > uint64(lane.total):
		return protocolError("DATA beyond the %d bytes of the request on lane %d", lane.total, f.Lane)
	}
	if int(lane.total) > smallRequest && len(*lane.request)+len(data) > cap(*lane.request) && !c.account.BelowShare(lane.charged) {
		lane.dropRequest()
		lane.state = laneIdle
		c.refuse(lane, refusedBuffers)
		return nil
	}
	*lane.request = append(*lane.request, data...)
	c.account.Moved(len(data))
	lane.charge()
	c.startIfComplete(lane)
	return nil
}

func (c *serverConn) startIfComplete(lane *serverLane) {
	if len(*lane.request) < int(lane.total) {
		lane.state = laneReceiving
		return
	}
	lane.state = laneRunning
	c.mu.running++
	c.turn.ready = lane
}

// cancel handles a CANCEL. It ignores one that comes too late.
func (c *serverConn) cancel(f wire.Frame) error {
	sequence, err := f.Cancel()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lane := c.laneLocked(f.Lane)
	if lane == nil || lane.sequence != sequence {
		return nil
	}
	switch lane.state {
	case laneReceiving:
		lane.dropRequest()
		lane.state = laneIdle
		c.refuse(lane, refusedCanceled)
	case laneRunning:
		lane.ctx.cancel(context.Canceled)
	}
	return nil
}

// charge adjusts the charge to the memory of the request. Small requests do not count in
// statistics.
func (l *serverLane) charge() {
	n := int64(cap(*l.request) + l.metadata)
	if n == l.charged {
		return
	}
	l.conn.account.Change(n - l.charged)
	if n > smallRequest {
		before := l.charged
		if before <= smallRequest {
			before = 0
		}
		l.conn.account.CountMessages(n - before)
	}
	l.charged = n
}

// dropRequest frees the memory of an admitted request.
func (l *serverLane) dropRequest() {
	l.conn.server.gate.Leave()
	l.conn.account.Moved(int(l.total) - len(*l.request))
	l.conn.account.Release(l.charged)
	if l.charged > smallRequest {
		l.conn.account.CountMessages(-l.charged)
	}
	l.charged = 0
	keepRequestBuffer(l.request)
	l.request = nil
}

// A bulkResponse is a response of several frames that has not been taken for sending. It owns the
// response's buffer.
type bulkResponse struct {
	conn.Bulk
	server *serverConn
	method *method
	ctx    *callContext
	out    *[]byte
	data   []byte
}

// Sent implements conn.Sent.
func (r *bulkResponse) Sent() {
	r.ctx.reservation.Release()
	r.method.keep(r.out, r.data)
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	r.server.endRunLocked()
}

// endRunLocked ends a request whose response is no longer read.
func (c *serverConn) endRunLocked() {
	c.mu.running--
	c.expectCloseLocked()
}

// respond ends the request of a running lane: the lane is idle, or gone, when it returns. It
// returns out, the method's buffer for data, to the method, after a response of several frames has
// been taken for sending. pending is the number of bytes that wait to be sent.
func (l *serverLane) respond(answer wire.Response, flags uint8, out *[]byte, data []byte) (pending int) {
	c, s, m, ctx := l.conn, l.conn.server, l.method, l.ctx
	var header, trailer Metadata
	if extra := ctx.end(); extra != nil { // also ends goroutines that wait for the context
		header, trailer = extra.header, extra.trailer
	}
	answer.Total = uint32(len(data))
	ctx.reservation.Fit(len(data), cap(data))
	var rest *conn.Bulk
	if conn.IsBulk(header, trailer, data) {
		r := &bulkResponse{server: c, method: m, ctx: ctx, out: out, data: data}
		r.InitResponse(r)
		rest = &r.Bulk
	}
	// Atomically for the client: the lane is free for the next request together with the
	// response, and a lost slot is not granted again before it.
	c.mu.Lock()
	l.dropRequest()
	l.state = laneIdle
	if answer.Code != uint32(CodeOK) {
		l.errors++
	}
	lost := c.mu.closed || flags&wire.FlagSlotLost != 0
	if lost {
		c.mu.lanes[l.number] = nil
	}
	answer.Sequence, answer.Lowest = l.sequence, c.lowestFree()
	answer.Load = s.load()
	pending, queued := c.out.Response(l.number, flags, answer, header, trailer, data, rest)
	if lost {
		s.reclaim(l.slot, c.share)
	}
	if !queued {
		ctx.reservation.Release() // the response was copied
		c.endRunLocked()
	}
	c.mu.Unlock()
	if !queued {
		m.keep(out, data)
	}
	return pending
}

// call calls the handler and encodes its result.
func (l *serverLane) call(now time.Time, out *[]byte) (answer wire.Response, flags uint8, data []byte) {
	s := l.conn.server
	if l.ctx.expired(now) {
		s.refused.add(refusedLate, l.batch)
		return wire.Response{Code: uint32(CodeDeadlineExceeded)}, 0, nil
	}
	s.counts.requests.Add(1)
	if l.conn.otherZone {
		s.counts.otherZone.Add(1)
	}
	data, panicked, err := l.protect(*out)
	if err == nil && uint64(len(data)) > uint64(l.conn.maxResponse) {
		err = &Error{
			Code:    CodeResourceExhausted,
			Message: fmt.Sprintf("response of %d bytes: the client accepts at most %d", len(data), l.conn.maxResponse),
			// Another server would return the same.
			Processed: true,
		}
	}
	if err == nil {
		return wire.Response{}, wire.FlagProcessed, data
	}
	s.counts.errors.Add(1)
	code, message, processed := describe(err)
	if processed {
		flags |= wire.FlagProcessed
	}
	if panicked {
		flags |= wire.FlagSlotLost
	}
	return wire.Response{Code: uint32(code)}, flags, []byte(wire.Cut(message, MaxMessageBytes))
}

// describe encodes a handler's error.
func describe(err error) (code Code, message string, processed bool) {
	code, message = CodeOf(err), err.Error()
	if code == CodeOK || code > wire.MaxCode {
		code = CodeUnknown // an error is not a success, also when a RESPONSE cuts its code
	}
	var e *Error
	if errors.As(err, &e) {
		message = e.Message
		if message == "" && e.cause != nil {
			message = e.cause.Error()
		}
	}
	if !IsNotProcessed(err) {
		return code, message, true
	}
	if !code.mayBeUnprocessed() {
		code = CodeUnavailable
	}
	return code, message, false
}

// protect calls the handler and converts a panic to an error.
func (l *serverLane) protect(dst []byte) (data []byte, panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			data, panicked, err = nil, true, l.conn.server.panicked(l.method.name, v)
		}
	}()
	data, err = l.conn.server.handler(l.ctx, l.method.name, *l.request, dst)
	return data, false, err
}

// panicked records the panic of a handler and returns the error for its client.
func (s *Server) panicked(method string, v any) error {
	s.counts.panics.Add(1)
	s.options.Logger.Error("handler panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
	return &Error{Code: CodeInternal, Message: "the handler panicked", Processed: true}
}

const (
	newBuffer     = 256      // bytes
	maxKeptBuffer = 64 << 10 // the largest buffer that is reused
)

// Small requests have their own pool, so that they do not hold the memory of large ones.
var smallBuffers, largeBuffers = sync.Pool{New: newRequestBuffer}, sync.Pool{New: newRequestBuffer}

func newRequestBuffer() any {
	b := make([]byte, 0, newBuffer)
	return &b
}

// requestBuffer returns a buffer for a request of that size.
func requestBuffer(size int) *[]byte {
	if size <= smallRequest {
		return smallBuffers.Get().(*[]byte)
	}
	return largeBuffers.Get().(*[]byte)
}

func keepRequestBuffer(b *[]byte) {
	switch {
	case cap(*b) > maxKeptBuffer:
		return
	case cap(*b) <= smallRequest:
		*b = (*b)[:0]
		smallBuffers.Put(b)
	default:
		*b = (*b)[:0]
		largeBuffers.Put(b)
	}
}

// refuse answers a request that no handler has seen.
func (c *serverConn) refuse(lane *serverLane, why refusal) {
	c.server.refused.add(why, lane.batch)
	refusal := refusalTable[why]
	c.out.Response(lane.number, 0, wire.Response{
		Sequence: lane.sequence,
		Total:    uint32(len(refusal.message)),
		Lowest:   c.lowestFree(),
		Code:     uint32(refusal.code),
	}, nil, nil, []byte(refusal.message), nil)
}
