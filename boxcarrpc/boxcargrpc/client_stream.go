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

// A clientStream implements grpc.ClientStream. One goroutine may receive while another
// sends.
type clientStream struct {
	ctx     context.Context
	stream  attempts
	desc    *grpc.StreamDesc
	opts    []grpc.CallOption
	options callOptions

	// Of the sending goroutine.
	out      []byte
	sentLast bool
	// Of the receiving goroutine.
	in       []byte
	received bool // at least one message

	unwatch func() bool // stops watching ctx

	mu struct {
		sync.Mutex
		ended   bool
		failure error // nil after a success
	}
}

// newStream opens a stream. It is the innermost interceptor.
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

// Context returns the stream's context. It has the peer, so it commits the stream.
func (s *clientStream) Context() context.Context {
	return peer.NewContext(s.ctx, peerOf(s.stream.commit().Peer()))
}

// Header waits for the server's header. If the stream fails, RecvMsg returns the error.
func (s *clientStream) Header() (metadata.MD, error) {
	m, err := s.stream.header()
	switch {
	case err != nil:
		return nil, nil //nolint:nilerr // as in gRPC
	case len(m) == 0:
		return metadata.MD{}, nil // nil would mean the end of the stream
	}
	return pairsOf(m), nil
}

func (s *clientStream) Trailer() metadata.MD { return pairsOf(s.stream.current().Trailer()) }

func (s *clientStream) CloseSend() error {
	s.sentLast = true
	s.stream.closeSend()
	return nil
}

// SendMsg sends a message. It returns io.EOF if the server has ended the stream; RecvMsg
// returns the status.
func (s *clientStream) SendMsg(message any) error {
	err := s.send(message)
	switch {
	case err == nil && !s.desc.ClientStreams:
		return s.CloseSend()
	case errors.Is(err, io.EOF) && !s.desc.ClientStreams:
		return nil // on an error generated code would not receive
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
		return io.EOF // RecvMsg returns the cause
	}
	return nil
}

// RecvMsg receives a message. If the method returns a single message, it also waits for
// the end of the stream.
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

// next receives a message, whose bytes are valid until the next call. io.EOF is the
// successful end of the stream.
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

// finish ends the stream after one of its methods has failed.
func (s *clientStream) finish(err error) {
	s.unwatch()
	s.end(err)
}

// end ends the stream if it has not ended, and fills in the call options.
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
