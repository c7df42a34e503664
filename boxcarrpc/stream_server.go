package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// A StreamHandler serves one stream, of any kind: it receives until io.EOF and sends
// messages in any order. Its result is the status of the stream, as for a [Handler]. ctx
// ends as that of a Handler does; then the stream's methods fail.
//
// Every stream has a goroutine. A panic is answered with CodeInternal.
type StreamHandler func(ctx context.Context, method string, stream *ServerStream) error

// A ServerStream is the handler's side of a stream. One goroutine at a time may receive and
// another may send. It must not be used after the handler has returned.
type ServerStream struct {
	stream
	conn   *serverConn
	tool   bool // a built-in stream, which is not counted
	method string
	call   callContext
	ended  refusal // why the server ended it, before the handler returned; guarded by conn.mu

	answer struct {
		sync.Mutex
		begun   bool // a header or a message was sent
		trailer Metadata
	}
}

var (
	errStreamOver = errors.New("boxcarrpc: the stream is over")
	errHeaderLate = errors.New("boxcarrpc: the header must be sent once, before the first message")
)

// Metadata returns the metadata with which the client opened the stream, nil if there is
// none. It must not be modified.
func (s *ServerStream) Metadata() Metadata { return MetadataOf(&s.call) }

// Receive appends the client's next message to dst. It returns io.EOF after the last one.
// On an error it returns dst unchanged.
func (s *ServerStream) Receive(dst []byte) ([]byte, error) { return s.receive(dst) }

// Send sends a message of at most MaxResponseBytes. It waits while the client has not
// received the 256 KiB before it. message is not used after Send has returned; the client
// may receive it later.
func (s *ServerStream) Send(message []byte) error {
	if limit := s.conn.maxResponse; uint64(len(message)) > uint64(limit) {
		return tooLong("message", len(message), int(limit))
	}
	if err := s.conn.session.Verify(time.Now()); err != nil {
		return fmt.Errorf("%w: %w", errNotAdmitted, err)
	}
	s.answer.Lock()
	s.answer.begun = true
	s.answer.Unlock()
	if n := cap(message); n > conn.SmallMessage {
		account := s.conn.account
		account.CountMessages(int64(n))
		account.Charge(int64(n))
		account.Await(n)
		defer account.CountMessages(-int64(n))
		defer account.Release(int64(n))
		defer account.Moved(n)
	}
	return s.send(message)
}

// SendHeader sends metadata, at most once and before the first message.
func (s *ServerStream) SendHeader(metadata Metadata) error {
	if err := metadata.check(); err != nil {
		return err
	}
	s.answer.Lock()
	defer s.answer.Unlock()
	if s.answer.begun {
		return errHeaderLate
	}
	s.answer.begun = true
	s.mu.Lock()
	if s.mu.over {
		s.mu.Unlock()
		return errStreamOver
	}
	s.out.Append(wire.AppendHeader(nil, s.number, s.sequence, metadata))
	s.mu.Unlock()
	s.out.Flush(false)
	return nil
}

// SetTrailer sets the metadata that is sent with the status; the last call counts. The
// metadata must not be modified after it.
func (s *ServerStream) SetTrailer(metadata Metadata) error {
	if err := metadata.check(); err != nil {
		return err
	}
	s.answer.Lock()
	defer s.answer.Unlock()
	s.answer.trailer = metadata
	return nil
}

// streamFrame handles a frame of a stream. It ignores frames that crossed the stream's
// STATUS.
func (c *serverConn) streamFrame(f wire.Frame) error {
	switch f.Type {
	case wire.TypeOpen:
		return c.open(f)
	case wire.TypeMessage:
		sequence, data, err := f.Message()
		if err != nil {
			return err
		}
		return c.onStream(f, sequence, func(s *ServerStream) error { return s.takeMessage(data, f.Flags&wire.FlagMore != 0) })
	case wire.TypeCredit:
		sequence, n, err := f.Credit()
		if err != nil {
			return err
		}
		return c.onStream(f, sequence, func(s *ServerStream) error { return s.takeCredit(n) })
	case wire.TypeEnd, wire.TypeReset:
		sequence, err := f.Sequence()
		if err != nil {
			return err
		}
		return c.onStream(f, sequence, func(s *ServerStream) error {
			if f.Type == wire.TypeEnd {
				return s.takeEnd()
			}
			s.call.cancel(context.Canceled)
			return nil
		})
	}
	return protocolError("%v from a client", f.Type)
}

// onStream calls take with the stream that a frame belongs to, if it is open.
func (c *serverConn) onStream(f wire.Frame, sequence uint32, take func(*ServerStream) error) error {
	if int(f.Lane) >= c.server.options.MaxStreams {
		return protocolError("%v on stream %d of at most %d", f.Type, f.Lane, c.server.options.MaxStreams)
	}
	c.mu.Lock()
	var s *ServerStream
	if int(f.Lane) < len(c.mu.streams) {
		s = c.mu.streams[f.Lane]
	}
	c.mu.Unlock()
	if s == nil || s.sequence != sequence {
		return nil
	}
	return take(s)
}

// open handles an OPEN.
func (c *serverConn) open(f wire.Frame) error {
	head, method, metadata, err := f.Open()
	if err != nil {
		return err
	}
	if int(f.Lane) >= c.server.options.MaxStreams {
		return protocolError("OPEN of stream %d of at most %d", f.Lane, c.server.options.MaxStreams)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for int(f.Lane) >= len(c.mu.streams) {
		c.mu.streams = append(c.mu.streams, nil)
	}
	if c.mu.streams[f.Lane] != nil {
		return protocolError("OPEN of stream %d, which is open", f.Lane)
	}
	batch := Metadata(metadata).isBatch()
	tool, admit := c.server.isTool(string(method)), func() refusal { return c.admitStreamLocked(batch) }
	maxMessage := c.server.options.MaxRequestBytes
	if tool {
		admit, maxMessage = c.admitTool, maxToolRequestBytes
		if head.Budget == 0 || head.Budget > toolTime {
			head.Budget = toolTime
		}
	}
	if why := admit(); why != admitted {
		c.refuseStream(f.Lane, head.Sequence, why, batch)
		return nil
	}
	s := &ServerStream{conn: c, tool: tool, method: string(method)}
	s.account = c.account
	s.init(&c.out, f.Lane, head.Sequence, maxMessage)
	s.ctx = &s.call
	s.call.peer, s.call.slot, s.call.batch, s.call.reservation.Account = c.peer, -1, batch, c.account
	if len(metadata) > 0 {
		s.call.extra = &callExtra{metadata: slices.Clone(metadata)}
	}
	if head.Budget > 0 {
		s.call.deadline = c.turn.clock.Add(head.Budget)
	}
	c.mu.streams[f.Lane] = s
	c.mu.running++
	c.server.workers.Run(streamJob{s})
	return nil
}

// admitStreamLocked admits a stream or returns the reason for refusing it.
func (c *serverConn) admitStreamLocked(batch bool) refusal {
	s := c.server
	if s.options.StreamHandler == nil {
		return refusedNoStreams
	}
	if !budget.Take(&s.counts.streams, s.options.MaxStreams, batch) {
		return refusedStreams
	}
	if !budget.Take(&c.share.streams, s.shares.streams, batch) {
		s.counts.streams.Add(-1)
		return refusedClientStreams
	}
	why := refusedBuffers
	if c.account.BelowShare(0) {
		why = c.admitLocked(batch)
	}
	if why != admitted {
		s.counts.streams.Add(-1)
		c.share.streams.Add(-1)
	}
	return why
}

// releaseStreamLocked ends the charge for a stream whose handler has returned. If that
// outlived the connection, it may be the last that the client had.
func (c *serverConn) releaseStreamLocked(tool bool) {
	s := c.server
	if tool {
		s.counts.tools.Add(-1)
		c.share.tools.Add(-1)
	} else {
		s.counts.streams.Add(-1)
		c.share.streams.Add(-1)
		s.gate.Leave()
	}
	if c.mu.closed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shares.forgetLocked(c.share)
	}
}

// endStreamsLocked ends the contexts of all streams, because their connection has ended, or
// for a reason that is their status.
func (c *serverConn) endStreamsLocked(why refusal) {
	for _, s := range c.mu.streams {
		if s != nil {
			s.ended = why
			s.call.cancel(context.Canceled)
		}
	}
}

// A streamJob serves a stream in a worker.
type streamJob struct{ *ServerStream }

// Work implements turns.Job.
func (s streamJob) Work() {
	server := s.conn.server
	if s.tool {
		s.end(s.protect())
		return
	}
	server.counts.requests.Add(1)
	if s.conn.otherZone {
		server.counts.otherZone.Add(1)
	}
	var err error = &Error{Code: CodeInternal, Message: "the handler ended its goroutine", Processed: true}
	defer func() {
		s.end(err)
	}()
	err = s.protect()
}

// protect calls the handler and converts a panic to an error.
func (s *ServerStream) protect() (err error) {
	server := s.conn.server
	defer func() {
		if v := recover(); v != nil {
			err = server.panicked(s.method, v)
		}
	}()
	return server.streams(s.ctx, s.method, s)
}

// end ends the stream with its status. For the client, the number is free once the STATUS
// has arrived.
func (s *ServerStream) end(err error) {
	c, status, flags := s.conn, wire.Status{Sequence: s.sequence}, uint8(wire.FlagProcessed)
	if err != nil {
		c.server.counts.errors.Add(1)
		code, message, processed := describe(err)
		status.Code, status.Message = uint32(code), wire.Cut(message, wire.MaxStatusBytes)
		if !processed {
			flags = 0
		}
	}
	s.answer.Lock()
	trailer := s.answer.trailer
	s.answer.Unlock()
	c.mu.Lock()
	if s.ended != admitted {
		refusal := refusalTable[s.ended]
		status.Code, status.Message, flags = uint32(refusal.code), refusal.message, wire.FlagProcessed
	}
	c.mu.streams[s.number] = nil
	c.releaseStreamLocked(s.tool)
	s.finish(errStreamOver, func() { c.out.Append(wire.AppendStatus(nil, s.number, flags, status, trailer)) })
	c.mu.running--
	c.expectCloseLocked()
	c.mu.Unlock()
	s.call.cancel(context.Canceled)
	s.freePieces()
	s.call.reservation.Release()
	c.out.Flush(true)
}

// refuseStream answers an OPEN that no handler has seen.
func (c *serverConn) refuseStream(number, sequence uint32, why refusal, batch bool) {
	c.server.refused.add(why, batch)
	refusal := refusalTable[why]
	c.out.Append(wire.AppendStatus(nil, number, 0, wire.Status{Sequence: sequence, Code: uint32(refusal.code), Message: refusal.message}, nil))
}

// admitTool admits a built-in stream or returns the reason for refusing it.
func (c *serverConn) admitTool() refusal {
	if !budget.Take(&c.share.tools, maxClientTools, false) {
		return refusedClientStreams
	}
	if !budget.Take(&c.server.counts.tools, maxTools, false) {
		c.share.tools.Add(-1)
		return refusedStreams
	}
	return admitted
}
