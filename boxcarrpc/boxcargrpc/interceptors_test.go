package boxcargrpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// A journal records the calls of interceptors in the order of each side.
type journal struct {
	mu     sync.Mutex
	bySide map[string][]string
}

// add adds an entry. Its first word is the side.
func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	side, _, _ := strings.Cut(format, " ")
	j.bySide[side] = append(j.bySide[side], fmt.Sprintf(format, args...))
}

// setup returns a setup with n interceptors of each kind on both sides.
func (j *journal) setup(n int, service testgrpc.TestServiceServer) setup {
	s := setup{service: service}
	for i := range n {
		s.client.UnaryInterceptors = append(s.client.UnaryInterceptors, func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			j.add("client %d: %s, target is known: %v", i, method, cc.Target() != "")
			err := invoker(metadata.AppendToOutgoingContext(ctx, "x-by", fmt.Sprint("client ", i)), method, request, reply, cc, opts...)
			j.add("client %d: %v", i, outcome(err))
			return err
		})
		s.client.StreamInterceptors = append(s.client.StreamInterceptors, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			j.add("client %d: %s %v %v", i, method, desc.ClientStreams, desc.ServerStreams)
			stream, err := streamer(metadata.AppendToOutgoingContext(ctx, "x-by", fmt.Sprint("client ", i)), desc, cc, method, opts...)
			return &loggedClientStream{stream, i, j}, err
		})
		s.server.UnaryInterceptors = append(s.server.UnaryInterceptors, func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			j.add("server %d: %s %v %T, implemented: %v", i, info.FullMethod, md["x-by"], request, info.Server == service)
			reply, err := handler(ctx, request)
			j.add("server %d: %T %v", i, reply, err)
			return reply, err
		})
		s.server.StreamInterceptors = append(s.server.StreamInterceptors, func(implementation any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			md, _ := metadata.FromIncomingContext(stream.Context())
			j.add("server %d: %s %v %v %v", i, info.FullMethod, md["x-by"], info.IsClientStream, info.IsServerStream)
			err := handler(implementation, &loggedServerStream{stream, i, j})
			j.add("server %d: %v", i, err)
			return err
		})
	}
	return s
}

type loggedClientStream struct {
	grpc.ClientStream
	number int
	*journal
}

func (s *loggedClientStream) SendMsg(m any) error {
	s.add("client %d sends", s.number)
	return s.ClientStream.SendMsg(m)
}

type loggedServerStream struct {
	grpc.ServerStream
	number int
	*journal
}

func (s *loggedServerStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	s.add("server %d receives: %v", s.number, end(err))
	return err
}

func TestInterceptors(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				j := journal{bySide: make(map[string][]string)}
				client := testgrpc.NewTestServiceClient(open(t, j.setup(n, &scripted{unary: echoUnary, duplex: echoDuplex})))
				_, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest))
				require.NoError(t, err)
				stream, err := client.FullDuplexCall(soon(t))
				require.NoError(t, err)
				require.NoError(t, stream.Send(new(testgrpc.StreamingOutputCallRequest)))
				require.Equal(t, "", received(stream.Recv()))
				require.NoError(t, stream.CloseSend())
				require.Equal(t, "EOF", received(stream.Recv()))
				return j.bySide
			})
		})
	}
}

func TestAnInterceptorMayAnswer(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		s := setup{service: &scripted{}}
		s.server.UnaryInterceptors = []grpc.UnaryServerInterceptor{func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return &testgrpc.SimpleResponse{Payload: payload("instead")}, nil
		}}
		s.server.StreamInterceptors = []grpc.StreamServerInterceptor{func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
			return errPlain
		}}
		client := testgrpc.NewTestServiceClient(open(t, s))
		seen := []any{received(client.UnaryCall(soon(t), new(testgrpc.SimpleRequest)))}
		stream, err := client.FullDuplexCall(soon(t))
		require.NoError(t, err)
		return append(seen, received(stream.Recv()))
	})
}
