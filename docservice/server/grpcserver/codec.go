package grpcserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // also registers the codec
	"google.golang.org/grpc/mem"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/server/internal/bounded"
)

// encoded is an encoded message. The handler of docservice takes and returns encoded
// messages: decoding and encoding them again would copy each document twice.
type encoded []byte

// A pooled is an encoded response in a buffer of pool, to which grpc-go returns it.
type pooled struct{ message encoded }

// pool has the buffers of responses of up to pooledBytes.
var pool = mem.DefaultBufferPool()

const pooledBytes = 4 << 10

// A charged is an encoded response whose memory is counted until grpc-go frees it. It
// is the pool to which its buffer is returned.
type charged struct {
	mem.NopBufferPool
	message  encoded
	response *bounded.Response
}

// Put implements mem.BufferPool.
func (r *charged) Put(*[]byte) { r.response.Release() }

// codec passes encoded messages unchanged and encodes others as the codec of grpc-go.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal encodes a message.
func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	switch m := message.(type) {
	case encoded:
		return mem.BufferSlice{mem.SliceBuffer(m)}, nil
	case *pooled:
		return mem.BufferSlice{mem.NewBuffer((*[]byte)(&m.message), pool)}, nil
	case *charged:
		return mem.BufferSlice{mem.NewBuffer((*[]byte)(&m.message), m)}, nil
	}
	return c.CodecV2.Marshal(message)
}

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if b, ok := message.(*encoded); ok {
		*b = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, message)
}

// registerDocuments registers the document service with a handler of encoded messages.
func registerDocuments(server *grpc.Server, handler boxcarrpc.Handler) {
	service := docservicegrpc.Documents_ServiceDesc
	service.HandlerType = nil
	service.Methods = make([]grpc.MethodDesc, 0, len(docservicegrpc.Documents_ServiceDesc.Methods))
	for _, method := range docservicegrpc.Documents_ServiceDesc.Methods {
		method.Handler = encodedMethod("/"+service.ServiceName+"/"+method.MethodName, handler)
		service.Methods = append(service.Methods, method)
	}
	server.RegisterService(&service, nil)
}

func encodedMethod(method string, handler boxcarrpc.Handler) grpc.MethodHandler {
	info := &grpc.UnaryServerInfo{FullMethod: method}
	call := func(ctx context.Context, request any) (any, error) {
		buffer := pool.Get(pooledBytes)
		response, err := handler(ctx, method, request.(encoded), (*buffer)[:0])
		if err == nil && cap(response) == cap(*buffer) {
			return &pooled{response}, nil
		}
		pool.Put(buffer)
		if err != nil {
			return nil, boxcargrpc.StatusError(err)
		}
		return encoded(response), nil // it has outgrown the buffer
	}
	return func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		var request encoded
		if err := decode(&request); err != nil {
			return nil, err
		}
		return interceptor(ctx, request, info, call)
	}
}
