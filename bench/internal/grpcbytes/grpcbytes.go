// Package grpcbytes carries bytes over gRPC without a message format.
package grpcbytes

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Codec is a codec of *[]byte. It decodes into the memory of the slice if that is large enough.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "bytes" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	b := v.(*[]byte)
	*b = slices.Grow((*b)[:0], data.Len())[:data.Len()]
	data.CopyTo(*b)
	return nil
}

// Conns are connections to a server.
type Conns []*grpc.ClientConn

// Connect returns connections to an address.
func Connect(address string, count int, transport credentials.TransportCredentials) (Conns, error) {
	c := make(Conns, 0, count)
	for range count {
		conn, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(transport), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Codec{})))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c = append(c, conn)
	}
	return c, nil
}

// Close closes the connections.
func (c Conns) Close() (err error) {
	for _, conn := range c {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// NewServer returns a server of a service, whose methods return the response to a request.
func NewServer(service string, methods map[string]func(request []byte) ([]byte, error), options ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(options, grpc.ForceServerCodecV2(Codec{}))...)
	description := grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil)}
	for name, method := range methods {
		handler := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var request []byte
			if err := decode(&request); err != nil {
				return nil, err
			}
			response, err := method(request)
			return &response, err
		}
		description.Methods = append(description.Methods, grpc.MethodDesc{MethodName: name, Handler: handler})
	}
	s.RegisterService(&description, struct{}{})
	return s
}
