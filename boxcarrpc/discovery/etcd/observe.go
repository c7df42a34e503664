package etcd

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// observed returns the options of a connection that report the outcome of each request, and of each
// message of a stream.
func observed(observe func(error)) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, request, reply, conn, opts...)
			report(err, observe)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, conn, method, opts...)
			if err != nil {
				report(err, observe)
				return nil, err
			}
			return &observedStream{stream, observe}, nil
		}),
	}
}

// report reports an outcome. A request that the caller ended says nothing about etcd, and one that
// etcd refuses says that it is there.
func report(err error, observe func(error)) {
	switch status.Code(err) {
	case codes.Canceled:
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.ResourceExhausted:
		observe(err)
	default:
		observe(nil)
	}
}

// observedStream is a stream whose messages are reported.
type observedStream struct {
	grpc.ClientStream
	observe func(error)
}

// RecvMsg implements grpc.ClientStream.
func (s *observedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if !errors.Is(err, io.EOF) {
		report(err, s.observe)
	}
	return err
}
