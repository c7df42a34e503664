// Package grpcbytes carries bytes over gRPC without a message format.
package grpcbytes

import (
	"context"
	"slices"

	"google.golang.org/grpc"
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
