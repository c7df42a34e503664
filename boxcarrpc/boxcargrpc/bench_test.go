package boxcargrpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
)

// BenchmarkUnary measures calls with a request of 16 bytes and a response of 1 KB, with
// client and server in one process over loopback: with a generated stub over gRPC and
// over Boxcar, and with the pool and explicit marshalling.
func BenchmarkUnary(b *testing.B) {
	answer := &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: make([]byte, 1024)}}
	s := setup{service: &scripted{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return answer, nil
	}}}
	s.server.Handler = func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		if err := proto.Unmarshal(request, new(testgrpc.SimpleRequest)); err != nil {
			return dst, err
		}
		return proto.MarshalOptions{}.MarshalAppend(dst, answer)
	}
	request := &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, 12)}}
	stub := func(conn *grpc.ClientConn) func(context.Context) error {
		client := testgrpc.NewTestServiceClient(conn)
		return func(ctx context.Context) error {
			response, err := client.UnaryCall(ctx, request)
			return checkAnswer(response, err)
		}
	}
	pool := boxcarPool(b, s)
	for _, callers := range []int{1, 64} {
		for _, one := range []struct {
			name string
			call func(context.Context) error
		}{
			{"grpc-go", stub(overGRPC(b, s))},
			{"boxcargrpc", stub(overBoxcar(b, s))},
			{"pool", func(ctx context.Context) error { return callPool(ctx, pool, request) }},
		} {
			b.Run(fmt.Sprintf("callers=%d/over=%s", callers, one.name), func(b *testing.B) { benchmark(b, callers, one.call) })
		}
	}
}

// BenchmarkMessages measures messages of 1 KB on one stream: ping-pong and one way.
func BenchmarkMessages(b *testing.B) {
	message := &testgrpc.StreamingOutputCallResponse{Payload: &testgrpc.Payload{Body: make([]byte, 1024)}}
	s := setup{service: &scripted{
		duplex: echoDuplex,
		output: func(request *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
			for range request.GetResponseParameters()[0].GetSize() {
				if err := stream.Send(message); err != nil {
					return err
				}
			}
			return nil
		},
	}}
	for _, one := range []struct {
		name string
		open transport
	}{{"grpc-go", overGRPC}, {"boxcargrpc", overBoxcar}} {
		client := testgrpc.NewTestServiceClient(one.open(b, s))
		b.Run("echoed/over="+one.name, func(b *testing.B) {
			stream, err := client.FullDuplexCall(b.Context())
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: message.GetPayload()}))
				response, err := stream.Recv()
				require.NoError(b, err)
				require.Len(b, response.GetPayload().GetBody(), 1024)
			}
			require.NoError(b, stream.CloseSend())
		})
		b.Run("received/over="+one.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(1024)
			stream, err := client.StreamingOutputCall(b.Context(), &testgrpc.StreamingOutputCallRequest{
				ResponseParameters: []*testgrpc.ResponseParameters{{Size: int32(b.N)}},
			})
			require.NoError(b, err)
			for range b.N {
				if _, err := stream.Recv(); err != nil {
					b.Fatal(err)
				}
			}
			require.Equal(b, "EOF", received(stream.Recv()))
		})
	}
}

func benchmark(b *testing.B, callers int, call func(context.Context) error) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func checkAnswer(response *testgrpc.SimpleResponse, err error) error {
	if err == nil && len(response.GetPayload().GetBody()) != 1024 {
		return fmt.Errorf("%d bytes", len(response.GetPayload().GetBody()))
	}
	return err
}

// benchBuffers has *[2][]byte, a request and a response.
var benchBuffers = sync.Pool{New: func() any { return new([2][]byte) }}

func callPool(ctx context.Context, pool *boxcarrpc.Pool, request proto.Message) error {
	buffers := benchBuffers.Get().(*[2][]byte)
	defer benchBuffers.Put(buffers)
	var err error
	if buffers[0], err = (proto.MarshalOptions{}).MarshalAppend(buffers[0][:0], request); err != nil {
		return err
	}
	if buffers[1], err = pool.Call(ctx, "/raw.Service/Call", buffers[0], buffers[1][:0]); err != nil {
		return err
	}
	response := new(testgrpc.SimpleResponse)
	return checkAnswer(response, proto.Unmarshal(buffers[1], response))
}
