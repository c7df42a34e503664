package boxcargrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
)

// ending returns nil for io.EOF.
func ending(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// received describes the result of Recv.
func received(body interface{ GetPayload() *testgrpc.Payload }, err error) string {
	if err != nil {
		return end(err)
	}
	return string(body.GetPayload().GetBody())
}

func end(err error) string {
	if err == io.EOF { //nolint:errorlint // generated code compares it so
		return "EOF"
	}
	return outcome(err)
}

func TestDuplex(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		seen := map[string]any{}
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				md, _ := metadata.FromIncomingContext(stream.Context())
				method, _ := grpc.MethodFromServerStream(stream)
				seen["request"] = []any{own(md), method}
				seen["set"] = outcome(stream.SetHeader(metadata.Pairs("x-header", "one")))
				seen["set by context"] = outcome(grpc.SetHeader(stream.Context(), metadata.Pairs("x-header", "two")))
				stream.SetTrailer(metadata.Pairs("x-trailer", "a"))
				err := echoDuplex(stream)
				stream.SetTrailer(metadata.Pairs("x-trailer", "b"))
				seen["header late"] = stream.SendHeader(metadata.Pairs("x-late", "1")) != nil
				return err
			},
		}}))
		ctx := metadata.AppendToOutgoingContext(soon(t), "x-request", "1", "x-request-bin", "\x00")
		stream, err := client.FullDuplexCall(ctx)
		require.NoError(t, err)
		for _, text := range []string{"a", "", string(make([]byte, 100_000))} {
			require.NoError(t, stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(text)}))
			require.Equal(t, text, received(stream.Recv()))
		}
		header, err := stream.Header()
		seen["header"] = []any{own(header), outcome(err)}
		require.NoError(t, stream.CloseSend())
		require.NoError(t, stream.CloseSend(), "twice")
		seen["end"] = []any{received(stream.Recv()), received(stream.Recv()), own(stream.Trailer())}
		seen["late send"] = outcome(stream.Send(&testgrpc.StreamingOutputCallRequest{}))
		return seen
	})
}

func TestStreamErrors(t *testing.T) {
	for name, failure := range handlerErrors(t) {
		t.Run(name, func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				var mu sync.Mutex
				var finished []string
				onFinish := grpc.OnFinish(func(err error) {
					mu.Lock()
					defer mu.Unlock()
					finished = append(finished, outcome(err))
				})
				client := testgrpc.NewTestServiceClient(open(t, setup{
					client: clientOptions(onFinish),
					service: &scripted{
						duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
							stream.SetTrailer(metadata.Pairs("x-trailer", "t"))
							_ = stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload("one")})
							return failure
						},
						output: func(request *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
							_ = stream.SetHeader(metadata.Pairs("x-header", string(request.GetPayload().GetBody())))
							return failure
						},
						input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
							if failure == nil {
								return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: 7})
							}
							return failure
						},
					},
				}))
				var seen []any
				duplex, err := client.FullDuplexCall(soon(t))
				require.NoError(t, err)
				seen = append(seen, received(duplex.Recv()), received(duplex.Recv()), own(duplex.Trailer()))

				output, err := client.StreamingOutputCall(soon(t), &testgrpc.StreamingOutputCallRequest{Payload: payload("p")})
				require.NoError(t, err)
				header, err := output.Header()
				seen = append(seen, own(header), outcome(err), received(output.Recv()), received(output.Recv()))

				input, err := client.StreamingInputCall(soon(t))
				require.NoError(t, err)
				response, err := input.CloseAndRecv()
				seen = append(seen, response.GetAggregatedPayloadSize(), end(err))
				mu.Lock()
				defer mu.Unlock()
				return append(seen, finished)
			})
		})
	}
}

// A handler sends no response or two instead of one.
func TestCardinality(t *testing.T) {
	for name, answers := range map[string]int{"none": 0, "two": 2} {
		t.Run(name, func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
					input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
						for range answers {
							if err := stream.SendMsg(new(testgrpc.StreamingInputCallResponse)); err != nil {
								return err
							}
						}
						return nil
					},
				}}))
				stream, err := client.StreamingInputCall(soon(t))
				require.NoError(t, err)
				_, err = stream.CloseAndRecv()
				return status.Code(err)
			})
		})
	}
}

// A client sends no request or two instead of one.
func TestCardinalityOfRequests(t *testing.T) {
	for name, requests := range map[string]int{"none": 0, "two": 2} {
		t.Run(name, func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				conn := open(t, setup{service: &scripted{
					unary: echoUnary,
					output: func(*testgrpc.StreamingOutputCallRequest, testgrpc.TestService_StreamingOutputCallServer) error {
						return nil
					},
				}})
				var seen []any
				for _, method := range []string{testgrpc.TestService_StreamingOutputCall_FullMethodName, testgrpc.TestService_UnaryCall_FullMethodName} {
					stream, err := conn.NewStream(soon(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
					require.NoError(t, err)
					for range requests {
						if err := stream.SendMsg(new(testgrpc.StreamingOutputCallRequest)); err != nil {
							require.Equal(t, "EOF", end(err)) // the server has answered the first already
						}
					}
					require.NoError(t, stream.CloseSend())
					seen = append(seen, status.Code(stream.RecvMsg(new(testgrpc.StreamingOutputCallResponse))))
				}
				return seen
			})
		})
	}
}

func TestAUnaryMethodAsAStream(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		var intercepted []string
		s := setup{service: &scripted{unary: echoUnary}}
		s.server.UnaryInterceptors = []grpc.UnaryServerInterceptor{func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			intercepted = append(intercepted, info.FullMethod)
			return handler(ctx, request)
		}}
		s.server.StreamInterceptors = []grpc.StreamServerInterceptor{func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
			return errPlain
		}}
		stream, err := open(t, s).NewStream(soon(t), new(grpc.StreamDesc), testgrpc.TestService_UnaryCall_FullMethodName)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(&testgrpc.SimpleRequest{Payload: payload("p")}))
		response := new(testgrpc.SimpleResponse)
		err = stream.RecvMsg(response)
		return []any{received(response, err), intercepted}
	})
}

func TestStreamIsCancelled(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		left := make(chan string, 2)
		finished := make(chan string, 1)
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				_ = stream.SendHeader(nil)
				_, err := stream.Recv()
				left <- fmt.Sprint(status.Code(err), stream.Context().Err(), status.Code(stream.Send(&testgrpc.StreamingOutputCallResponse{})))
				return err
			},
		}}))
		ctx, cancel := context.WithCancel(soon(t))
		stream, err := client.FullDuplexCall(ctx, grpc.OnFinish(func(err error) { finished <- outcome(err) }))
		require.NoError(t, err)
		_, err = stream.Header()
		require.NoError(t, err)
		cancel()
		seen := []any{<-left, <-finished, received(stream.Recv())}
		return append(seen, end(stream.Send(&testgrpc.StreamingOutputCallRequest{})))
	})
}

// SendMsg returns io.EOF after the end of the stream.
func TestSendAfterTheEnd(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			duplex: func(testgrpc.TestService_FullDuplexCallServer) error { return status.Error(codes.Aborted, "enough") },
		}}))
		stream, err := client.FullDuplexCall(soon(t))
		require.NoError(t, err)
		for err == nil {
			err = stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload("more")})
		}
		return []any{end(err), received(stream.Recv())}
	})
}

// The error of a stream whose connection breaks does not match io.EOF, which would mean
// the successful end of the stream.
func TestBrokenConnectionIsNotEOF(t *testing.T) {
	listener := listen(t)
	defer listener.Close()
	cut := make(chan struct{})
	services := boxcargrpc.NewServices(nil)
	testgrpc.RegisterTestServiceServer(services, &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
		_ = stream.SendHeader(nil)
		close(cut)
		<-stream.Context().Done()
		return nil
	}})
	server := boxcarrpc.NewServer(services.Handle, &boxcarrpc.ServerOptions{StreamHandler: services.HandleStream})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() { <-ended }()
	defer server.Close()
	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), nil)
	require.NoError(t, err)
	defer pool.Close()
	finished := make(chan error, 1)
	conn, err := boxcargrpc.NewClient(pool, &boxcargrpc.ClientOptions{CallOptions: []grpc.CallOption{grpc.OnFinish(func(err error) { finished <- err })}})
	require.NoError(t, err)
	defer conn.Close()
	stream, err := testgrpc.NewTestServiceClient(conn).FullDuplexCall(soon(t))
	require.NoError(t, err)
	<-cut
	require.NoError(t, server.Close())
	_, err = stream.Recv()
	for _, err := range []error{err, <-finished} {
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.NotErrorIs(t, err, io.EOF)
		var failed *boxcarrpc.Error
		require.ErrorAs(t, err, &failed)
	}
}
