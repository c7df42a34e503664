package boxcargrpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// A clientStream is a stream as generated code uses it: one goroutine receives,
// another may send.
type clientStream struct {
	ctx     context.Context
	stream  attempts
	desc    *grpc.StreamDesc
	opts    []grpc.CallOption
	options callOptions

	out      []byte // the sender's
	sentLast bool   // the sender's
	in       []byte // the receiver's
	received bool   // the receiver's: there was a message

	unwatch func() bool // leaves the end of ctx unnoticed

	mu struct {
		sync.Mutex
		ended   bool
		failure error // how, nil if well
	}
}

// newStream opens a stream; it is an interceptor that calls no other.
func (c *client) newStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := checkOpen(cc); err != nil {
		(&result{}).tell(opts, err)
		return nil, err
	}
	s, err := c.open(ctx, desc, method, opts)
	if err != nil {
		(&result{}).tell(opts, err)
		return nil, err
	}
	return s, nil
}

func (c *client) open(ctx context.Context, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (*clientStream, error) {
	options, err := c.readOptions(opts)
	if err != nil {
		return nil, err
	}
	m, err := c.requestMetadata(ctx, method, &options)
	if err != nil {
		return nil, err
	}
	s := &clientStream{ctx: ctx, desc: desc, opts: opts, options: options}
	s.stream.open = func() (*boxcarrpc.ClientStream, error) { return c.pool.Stream(ctx, method, m) }
	if s.stream.mu.stream, err = s.stream.open(); err != nil {
		return nil, callFailed(ctx, err, nil)
	}
	s.unwatch = context.AfterFunc(ctx, func() { s.end(status.FromContextError(ctx.Err()).Err()) })
	return s, nil
}

// Context is of the stream. It has the peer, so that there is no further attempt.
func (s *clientStream) Context() context.Context {
	return peer.NewContext(s.ctx, peerOf(s.stream.commit().Peer()))
}

// Header waits for what the server sends before its first message. What fails the
// stream is told by RecvMsg.
func (s *clientStream) Header() (metadata.MD, error) {
	m, err := s.stream.header()
	switch {
	case err != nil:
		return nil, nil //nolint:nilerr // as in gRPC
	case len(m) == 0:
		return metadata.MD{}, nil // nil would say that the stream is over
	}
	return pairsOf(m), nil
}

func (s *clientStream) Trailer() metadata.MD { return pairsOf(s.stream.current().Trailer()) }

func (s *clientStream) CloseSend() error {
	s.sentLast = true
	s.stream.closeSend()
	return nil
}

// SendMsg sends a message. io.EOF says that the server has ended the stream, and
// RecvMsg how.
func (s *clientStream) SendMsg(message any) error {
	err := s.send(message)
	switch {
	case err == nil && !s.desc.ClientStreams:
		return s.CloseSend()
	case errors.Is(err, io.EOF) && !s.desc.ClientStreams:
		return nil // generated code would not receive
	case err != nil && !errors.Is(err, io.EOF):
		s.finish(err)
	}
	return err
}

func (s *clientStream) send(message any) error {
	if s.sentLast {
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	}
	var err error
	if s.out, err = s.options.marshal(reuse(s.out), message); err != nil {
		return err
	}
	if err := s.stream.send(s.out); err != nil {
		return io.EOF // RecvMsg tells the cause
	}
	return nil
}

// RecvMsg receives a message. If there is to be one only, it awaits the end of
// the stream, too.
func (s *clientStream) RecvMsg(message any) error {
	err := s.receive(message)
	if err == nil && s.desc.ServerStreams {
		return nil
	}
	if err == nil {
		if _, err = s.next(); err == nil {
			err = status.Error(codes.Internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	s.finish(err)
	return err
}

func (s *clientStream) receive(message any) error {
	data, err := s.next()
	if err == nil {
		s.received = true
		return s.options.unmarshal(data, message)
	}
	if errors.Is(err, io.EOF) && !s.received && !s.desc.ServerStreams {
		return status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
	}
	return err
}

// next receives the bytes of a message, which are valid until the next. io.EOF
// is a good end.
func (s *clientStream) next() ([]byte, error) {
	var err error
	if s.in, err = s.stream.receive(reuse(s.in)); err == nil {
		return s.in, nil
	}
	s.mu.Lock()
	failure := s.mu.failure
	s.mu.Unlock()
	switch {
	case failure != nil:
		return nil, failure
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	}
	return nil, callFailed(s.ctx, err, s.stream.current().Trailer())
}

// finish ends the stream because one of its methods has found it to be over.
func (s *clientStream) finish(err error) {
	s.unwatch()
	s.end(err)
}

// end ends the stream on this side, if it has not ended, and tells how.
func (s *clientStream) end(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.mu.Lock()
	first := !s.mu.ended
	if first {
		s.mu.ended, s.mu.failure = true, err
	}
	s.mu.Unlock()
	if !first {
		return
	}
	stream := s.stream.commit()
	stream.Close()
	r := result{trailer: stream.Trailer(), server: stream.Peer()}
	if m, err := stream.Header(); err == nil {
		r.header = m
	}
	r.tell(s.opts, err)
}
