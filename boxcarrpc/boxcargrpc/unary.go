package boxcargrpc

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"docstore/boxcarrpc"
)

// Handle is the boxcarrpc.Handler of the services.
func (s *Services) Handle(ctx context.Context, name string, request, dst []byte) ([]byte, error) {
	m := s.find(name)
	switch {
	case m == nil && s.options.Handler != nil:
		return s.options.Handler(ctx, name, request, dst)
	case m == nil:
		return dst, s.unimplemented(name)
	case m.unary == nil:
		return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Message: name + " is a stream: open it as one", Processed: true}
	}
	response := &responseMetadata{method: name}
	out, err := s.callUnary(ctx, m, request, dst, response)
	header, trailer, failure := response.end(err)
	if len(header) > 0 {
		failure = cmp.Or(failure, boxcarrpc.SetHeader(ctx, header))
	}
	if len(trailer) > 0 {
		failure = cmp.Or(failure, boxcarrpc.SetTrailer(ctx, trailer))
	}
	if failure != nil {
		return dst, failure
	}
	return out, nil
}

// callUnary calls the handler of a method with the interceptors, and appends its response
// to dst.
func (s *Services) callUnary(ctx context.Context, m *method, request, dst []byte, response *responseMetadata) ([]byte, error) {
	ctx, codec, err := s.begin(ctx, response)
	if err != nil {
		return dst, err
	}
	decode := func(message any) error { return codec.read(request, message) }
	reply, err := m.unary.Handler(m.service.implementation, ctx, decode, s.unary)
	if err != nil {
		return dst, err
	}
	return codec.append(dst, reply)
}

// begin adds the values for gRPC handlers to the context of a request, and returns its
// codec.
func (s *Services) begin(ctx context.Context, response *responseMetadata) (context.Context, codec, error) {
	md := pairsOf(boxcarrpc.MetadataOf(ctx))
	used, err := announced(md, s.codec)
	if err != nil {
		return nil, codec{}, err
	}
	if from := peerOf(boxcarrpc.PeerOf(ctx)); from != nil {
		ctx = peer.NewContext(ctx, from)
	}
	ctx = metadata.NewIncomingContext(ctx, md)
	return grpc.NewContextWithServerTransportStream(ctx, response), used, nil
}
