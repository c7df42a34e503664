package boxcargrpc

import (
	"cmp"
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// HandleStream is the boxcarrpc.StreamHandler of the services.
func (s *Services) HandleStream(ctx context.Context, name string, stream *boxcarrpc.ServerStream) error {
	m := s.find(name)
	switch {
	case m != nil:
		return s.serveStream(ctx, m, stream)
	case s.options.StreamHandler != nil:
		return s.options.StreamHandler(ctx, name, stream)
	}
	return s.unimplemented(name)
}

// serveStream serves a stream. The method may be unary.
func (s *Services) serveStream(ctx context.Context, m *method, stream *boxcarrpc.ServerStream) error {
	response := &responseMetadata{method: m.name, write: stream.SendHeader}
	ctx, codec, err := s.begin(ctx, response)
	if err == nil {
		err = s.callStream(m, &serverStream{ctx: ctx, stream: stream, desc: m.stream, codec: codec, response: response})
	}
	err = cmp.Or(err, response.flush())
	_, trailer, failure := response.end(err)
	return cmp.Or(failure, stream.SetTrailer(trailer))
}

// callStream calls the handler of a method with the interceptors of its kind.
func (s *Services) callStream(m *method, stream *serverStream) error {
	if s.stream == nil || m.unary != nil {
		return m.stream.Handler(m.service.implementation, stream)
	}
	return s.stream(m.service.implementation, stream, &grpc.StreamServerInfo{
		FullMethod:     m.name,
		IsClientStream: m.stream.ClientStreams,
		IsServerStream: m.stream.ServerStreams,
	}, m.stream.Handler)
}

// asStream adapts a unary method to a stream handler, for clients that open a stream.
func (s *Services) asStream(desc *grpc.MethodDesc) grpc.StreamHandler {
	return func(implementation any, stream grpc.ServerStream) error {
		reply, err := desc.Handler(implementation, stream.Context(), stream.RecvMsg, s.unary)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}
}

// A serverStream implements grpc.ServerStream. One goroutine may receive while another
// sends.
type serverStream struct {
	ctx      context.Context
	stream   *boxcarrpc.ServerStream
	desc     *grpc.StreamDesc
	codec    codec
	response *responseMetadata

	out      []byte // of the sending goroutine
	in       []byte // of the receiving goroutine
	received bool   // of the receiving goroutine: at least one message
}

func (s *serverStream) Context() context.Context        { return s.ctx }
func (s *serverStream) SetHeader(md metadata.MD) error  { return s.response.SetHeader(md) }
func (s *serverStream) SendHeader(md metadata.MD) error { return s.response.SendHeader(md) }
func (s *serverStream) SetTrailer(md metadata.MD)       { s.response.setTrailer(md) }

func (s *serverStream) SendMsg(message any) error {
	err := s.response.flush()
	if err != nil {
		return err
	}
	if s.out, err = s.codec.append(reuse(s.out), message); err != nil {
		return err
	}
	if err := s.stream.Send(s.out); err != nil {
		return callFailed(s.ctx, err, nil)
	}
	return nil
}

// RecvMsg receives a message. If the method takes a single message, it also waits until
// the client half-closes the stream.
func (s *serverStream) RecvMsg(message any) error {
	data, err := s.next()
	switch {
	case errors.Is(err, io.EOF) && !s.desc.ClientStreams && !s.received:
		return status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	case err != nil:
		return err
	}
	s.received = true
	if err := s.codec.read(data, message); err != nil || s.desc.ClientStreams {
		return err
	}
	if _, err = s.next(); err == nil {
		return status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	} else if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// next receives a message, whose bytes are valid until the next call.
func (s *serverStream) next() ([]byte, error) {
	var err error
	if s.in, err = s.stream.Receive(reuse(s.in)); err == nil || errors.Is(err, io.EOF) {
		return s.in, err
	}
	return nil, callFailed(s.ctx, err, nil)
}
