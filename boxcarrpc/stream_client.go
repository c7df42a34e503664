package boxcarrpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

// A StreamOpener opens a stream: [Pool.Stream] without interceptors is the innermost one.
// [ClientStream.OnEnd] reports the end of the stream.
type StreamOpener func(ctx context.Context, method string, metadata Metadata) (*ClientStream, error)

// A ClientStream is the client's side of a stream. One goroutine at a time may receive and
// another may send. The caller must receive until an error, call Close, or end the context;
// otherwise the stream stays open.
type ClientStream struct {
	stream
	transport *transport
	cancel    context.CancelFunc
	stop      func() bool // unregisters abandon from the context

	ticket uint64

	begun   chan struct{} // closed when the header has arrived or cannot arrive any more
	answer  sync.Once
	header  Metadata      // valid when begun is closed
	closed  bool          // no more messages are sent; guarded by mu
	onEnd   []func(error) // guarded by mu
	trailer Metadata      // guarded by mu
}

// open opens a stream. It returns nil if the transport has ended.
func (t *transport) open(ctx context.Context, method string, metadata []byte) *ClientStream {
	s := &ClientStream{transport: t, begun: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	t.mu.Lock()
	if t.mu.err != nil {
		t.mu.Unlock()
		s.cancel()
		return nil
	}
	table := &t.mu.streams
	number := slices.Index(table.open, nil)
	if number < 0 {
		number = len(table.open)
		table.open = append(table.open, nil)
	}
	table.open[number] = s
	table.sequence++
	s.init(&t.out, uint32(number), table.sequence, MaxResponseBytes)
	s.ctx = ctx
	head := wire.Open{Sequence: s.sequence}
	if deadline, ok := ctx.Deadline(); ok {
		head.Budget = max(time.Until(deadline), 1)
	}
	s.ticket = s.out.Append(wire.AppendOpen(nil, s.number, head, method, metadata))
	t.outstanding.Add(1)
	pass := t.turn.take()
	s.stop = context.AfterFunc(ctx, s.abandon)
	t.mu.Unlock()
	if pass {
		t.turn.pass <- struct{}{} // messages arrive at any time: the reader reads
	}
	t.out.Flush(true)
	t.noteStreamSend()
	return s
}

// Receive appends the server's next message to dst. When the server has ended the stream it
// returns io.EOF for success, else an *Error. On any error it returns dst unchanged, and
// the stream is over.
func (s *ClientStream) Receive(dst []byte) ([]byte, error) {
	out, err := s.receive(dst)
	if err != nil {
		s.Close()
	}
	return out, err
}

// Send sends a message of at most MaxRequestBytes, or the server's limit. It waits while
// the server has not received the 256 KiB before it. message is not used after Send has
// returned; the server may receive it later. When the stream is over, Send returns the
// error that Receive returns at its end.
func (s *ClientStream) Send(message []byte) error {
	if limit := s.transport.hello.MaxRequest; uint64(len(message)) > uint64(limit) {
		return tooLong("message", len(message), int(limit))
	}
	s.transport.noteStreamSend() // before: a dead server may block it
	err := s.send(message)
	s.transport.noteStreamSend() // after: it may have waited for credit
	return err
}

// CloseSend tells the server that there are no more messages. It waits for a Send in
// progress. It is idempotent.
func (s *ClientStream) CloseSend() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	send := !s.mu.over && !s.closed
	s.closed = true
	if send {
		s.out.Append(wire.AppendSequence(nil, wire.TypeEnd, s.number, s.sequence))
	}
	s.mu.Unlock()
	if send {
		s.out.Flush(false)
		s.transport.noteStreamSend()
	}
}

// Header waits for the metadata that the server sends before its first message; nil if it
// sends none. It must not be modified.
func (s *ClientStream) Header() (Metadata, error) {
	select {
	case <-s.begun:
		return s.header, nil
	case <-s.ctx.Done():
		select {
		case <-s.begun:
			return s.header, nil
		default:
			return nil, s.cause()
		}
	}
}

// Peer returns the server of the stream.
func (s *ClientStream) Peer() *Peer { return s.transport.server }

// Trailer returns the metadata of the status, once Receive has returned an error; nil if
// there is none. It must not be modified.
func (s *ClientStream) Trailer() Metadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// Close ends the stream if it is not over: the context of its handler ends. Close is
// idempotent.
func (s *ClientStream) Close() {
	s.stop()
	s.abandon()
}

// OnEnd registers fn to be called when the stream is over, with the error of the stream,
// nil for success. If the stream is over already, fn is called at once. fn must not block:
// it may run in the reader of the connection.
func (s *ClientStream) OnEnd(fn func(error)) {
	s.mu.Lock()
	over, failure := s.mu.over, s.mu.failure
	if !over {
		s.onEnd = append(s.onEnd, fn)
	}
	s.mu.Unlock()
	if over {
		fn(failure)
	}
}

// callOnEnd calls the functions registered by OnEnd. The stream is over.
func (s *ClientStream) callOnEnd() {
	s.mu.Lock()
	callbacks, failure := s.onEnd, s.mu.failure
	s.onEnd = nil
	s.mu.Unlock()
	for _, fn := range callbacks {
		fn(failure)
	}
}

// abandon ends the stream on this side. Its number stays in use until the server has ended
// it, too.
func (s *ClientStream) abandon() {
	s.cancel()
	first := s.finish(contextError(s.ctx, true), func() {
		s.mu.pieces, s.mu.data, s.mu.next, s.mu.start = nil, nil, 0, 0
		s.out.Append(wire.AppendSequence(nil, wire.TypeReset, s.number, s.sequence))
	})
	if first {
		s.out.Flush(false)
		s.transport.noteStreamSend()
		s.callOnEnd()
	}
}

// streamFrame handles a frame of a stream.
func (t *transport) streamFrame(f wire.Frame) error {
	switch f.Type {
	case wire.TypeHeader:
		sequence, metadata, err := f.Header()
		if err != nil {
			return err
		}
		return t.onStream(f, sequence, func(s *ClientStream) error { return s.takeHeader(metadata) })
	case wire.TypeMessage:
		sequence, data, err := f.Message()
		if err != nil {
			return err
		}
		return t.onStream(f, sequence, func(s *ClientStream) error {
			s.answer.Do(func() { close(s.begun) })
			return s.takeMessage(data, f.Flags&wire.FlagMore != 0)
		})
	case wire.TypeCredit:
		sequence, n, err := f.Credit()
		if err != nil {
			return err
		}
		return t.onStream(f, sequence, func(s *ClientStream) error { return s.takeCredit(n) })
	case wire.TypeStatus:
		status, trailer, err := f.Status()
		if err != nil {
			return err
		}
		return t.onStream(f, status.Sequence, func(s *ClientStream) error {
			s.takeStatus(status, f.Flags&wire.FlagProcessed != 0, trailer)
			return nil
		})
	}
	return protocolError("%v from a server", f.Type)
}

// onStream calls take with the stream that a frame belongs to.
func (t *transport) onStream(f wire.Frame, sequence uint32, take func(*ClientStream) error) error {
	t.mu.Lock()
	var s *ClientStream
	if int(f.Lane) < len(t.mu.streams.open) {
		s = t.mu.streams.open[f.Lane]
	}
	t.mu.Unlock()
	if s == nil || s.sequence != sequence {
		return protocolError("%v %d on stream %d, which is not open", f.Type, sequence, f.Lane)
	}
	return take(s)
}

func (s *ClientStream) takeHeader(metadata []byte) error {
	err := protocolError("HEADER on stream %d, which has begun", s.number)
	s.answer.Do(func() {
		s.header = append([]byte(nil), metadata...)
		close(s.begun)
		err = nil
	})
	return err
}

// hasBegun reports whether the server has sent a header or a message.
func (s *ClientStream) hasBegun() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

// takeStatus handles a STATUS: it ends the stream.
func (s *ClientStream) takeStatus(status wire.Status, processed bool, trailer []byte) {
	t, code := s.transport, Code(status.Code)
	t.mu.Lock()
	open := t.mu.streams.open
	if int(s.number) >= len(open) || open[s.number] != s {
		t.mu.Unlock()
		return // the transport has failed meanwhile, and failStreams has ended the stream
	}
	open[s.number] = nil
	t.mu.Unlock()
	t.outstanding.Add(-1)
	// A stream that was answered in part must not be repeated, whatever the server says.
	processed = processed || s.hasBegun()
	var failure error
	if code != CodeOK {
		failure = &Error{Code: code, Message: status.Message, Processed: processed}
	}
	outcome := outcomeOf(code, processed)
	if code == CodeDeadlineExceeded {
		outcome = core.Neutral // a stream may last until its deadline
	}
	if code.blamesServer() && !s.hasBegun() {
		// A server that fails all streams at once would have the fewest, and get all new
		// ones.
		outcome = core.Refused
	}
	s.end(failure, trailer)
	if outcome != core.Neutral {
		t.members.slots.recordOutcome(t.peer.index, outcome)
	}
	t.members.streamsEnded(t, 1)
}

// end ends the stream because the server or the transport has ended it.
func (s *ClientStream) end(failure error, trailer []byte) {
	first := s.finish(failure, func() {
		s.mu.ended = true
		s.trailer = append([]byte(nil), trailer...)
	})
	if first {
		defer s.callOnEnd()
	}
	s.answer.Do(func() { close(s.begun) })
	s.stop()
	s.cancel()
}

// failStreams ends the streams of a transport that has ended.
func (t *transport) failStreams(cause error) {
	t.mu.Lock()
	open := slices.DeleteFunc(t.mu.streams.open, func(s *ClientStream) bool { return s == nil })
	t.mu.streams.open = nil
	t.mu.Unlock()
	for _, s := range open {
		s.end(transportError(t, cause, t.out.Reached(s.ticket)), nil)
	}
	t.members.streamsEnded(t, len(open))
}

// Stream opens a stream to the server with the fewest streams of the pool, among equals the
// one that got none for longest. Servers that are silent or refuse requests come last. The
// stream takes no slot. metadata is sent with it.
//
// Stream does not wait for the server: Receive reports whether the server has accepted the
// stream. It waits within ctx for a first connection, as Call does. ctx applies to the
// whole stream: its deadline is sent to the server; without one there is none. Above
// MaxStreams it fails with ErrPoolBusy. The pool never retries a stream; an [Error] with
// Processed false says that the caller may.
func (p *Pool) Stream(ctx context.Context, method string, metadata Metadata) (*ClientStream, error) {
	if p.opener != nil {
		return p.opener(ctx, method, metadata)
	}
	return p.openStream(ctx, method, metadata)
}

// openStream is Stream without interceptors.
func (p *Pool) openStream(ctx context.Context, method string, metadata Metadata) (*ClientStream, error) {
	if len(method) > MaxMethodBytes {
		return nil, &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf(
			"stream to a method of %d bytes: at most %d are allowed", len(method), MaxMethodBytes)}
	}
	if err := metadata.check(); err != nil {
		return nil, err
	}
	if IsBatch(ctx) {
		metadata = metadata.withBatch()
	}
	for {
		if ctx.Err() != nil {
			return nil, contextError(ctx, false)
		}
		t, connected, err := p.members.streamTransport()
		if err != nil {
			return nil, err
		}
		if t == nil {
			select {
			case <-connected:
			case <-p.members.ctx.Done():
				return nil, ErrPoolClosed
			case <-ctx.Done():
				return nil, p.members.noServer(ctx)
			}
			continue
		}
		if s := t.open(ctx, method, metadata); s != nil {
			return s, nil
		}
		p.members.streamsEnded(t, 1) // the transport has ended
	}
}

// noteStreamSend records that a frame was sent on a stream.
func (t *transport) noteStreamSend() {
	t.streamSends.Add(1)
	if t.members.livenessCheckSlow.Load() {
		t.members.noteSend()
	}
}
