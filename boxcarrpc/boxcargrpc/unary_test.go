package boxcargrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
)

// outcome describes an error.
func outcome(err error) string {
	if err == nil {
		return "OK"
	}
	s, ok := status.FromError(err)
	return fmt.Sprint(ok, " ", s.Code(), " ", s.Message(), " ", s.Details(), " ", err)
}

// own returns the pairs of md that a test has set.
func own(md metadata.MD) map[string][]string {
	r := make(map[string][]string)
	for key, values := range md {
		if strings.HasPrefix(key, "x-") {
			r[key] = values
		}
	}
	return r
}

func TestUnaryMetadata(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		seen := map[string]any{}
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				md, ok := metadata.FromIncomingContext(ctx)
				seen["request"] = []any{own(md), ok}
				method, _ := grpc.Method(ctx)
				seen["method"] = method
				seen["set"] = outcome(grpc.SetHeader(ctx, metadata.Pairs("x-header", "one")))
				seen["send"] = outcome(grpc.SendHeader(ctx, metadata.Pairs("x-header", "two", "x-other-bin", "\x00\xff")))
				seen["set late"] = grpc.SetHeader(ctx, metadata.Pairs("x-late", "1")) != nil
				seen["send twice"] = grpc.SendHeader(ctx, metadata.Pairs("x-late", "1")) != nil
				seen["trailer"] = outcome(grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "a")))
				seen["trailer again"] = outcome(grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "b")))
				return echoUnary(ctx, request)
			},
		}}))
		ctx := metadata.AppendToOutgoingContext(soon(t), "X-Upper", "1", "x-many", "1", "x-many", "2", "x-some-bin", "\x00\x01\xff", "x-empty", "", "te", "no", "grpc-timeout", "no")
		var header, trailer metadata.MD
		response, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: payload("hello")}, grpc.Header(&header), grpc.Trailer(&trailer))
		require.NoError(t, err)
		require.Equal(t, "hello", string(response.GetPayload().GetBody()))
		seen["client"] = []any{own(header), own(trailer)}
		return seen
	})
}

func TestUnaryWithoutMetadata(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		var seen []any
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				md, ok := metadata.FromIncomingContext(ctx)
				md.Set("x-mine", "1") // a copy of the caller's metadata
				again, _ := metadata.FromIncomingContext(ctx)
				seen = append(seen, own(again), ok, outcome(grpc.SetTrailer(ctx, nil)))
				return echoUnary(ctx, request)
			},
		}}))
		var header, trailer metadata.MD
		_, err := client.UnaryCall(soon(t), &testgrpc.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		return append(seen, outcome(err), own(header), own(trailer))
	})
}

// withDetails returns a status with all fields set.
func withDetails(t *testing.T) error {
	s, err := status.New(codes.FailedPrecondition, "not so: ☺\t\r\n").WithDetails(
		&errdetails.ErrorInfo{Reason: "WHY", Domain: "here", Metadata: map[string]string{"a": "b"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "f", Description: "d"}}},
	)
	require.NoError(t, err)
	return s.Err()
}

// handlerErrors are the kinds of error of a handler.
func handlerErrors(t *testing.T) map[string]error {
	return map[string]error{
		"nil":             nil,
		"plain":           errPlain,
		"status":          status.Error(codes.NotFound, "no such thing"),
		"wrapped":         fmt.Errorf("around: %w", status.Error(codes.AlreadyExists, "inside")),
		"details":         withDetails(t),
		"wrapped details": fmt.Errorf("around: %w", withDetails(t)),
		"deadline":        context.DeadlineExceeded,
		"canceled":        fmt.Errorf("gave up: %w", context.Canceled),
		"own code":        status.Error(codes.Code(77), "of this program"),
		"empty":           status.Error(codes.Internal, ""),
		"retryable":       boxcargrpc.NotProcessed(status.Error(codes.Unavailable, "ask another")),
	}
}

func TestUnaryErrors(t *testing.T) {
	for name, failure := range handlerErrors(t) {
		t.Run(name, func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
					unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
						_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "h"))
						_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "t"))
						return new(testgrpc.SimpleResponse), failure
					},
				}}))
				var header, trailer metadata.MD
				var finished []string
				_, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest), grpc.Header(&header), grpc.Trailer(&trailer),
					grpc.OnFinish(func(err error) { finished = append(finished, outcome(err)) }))
				return []any{outcome(err), own(header), own(trailer), finished, len(trailer["grpc-status-details-bin"])}
			})
		})
	}
}

func TestUnimplemented(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		conn := open(t, setup{service: &scripted{}})
		var seen []string
		for _, method := range []string{"/grpc.testing.TestService/None", "/none.Such/Method", "/NoService", "/grpc.testing.TestService/UnimplementedCall"} {
			err := conn.Invoke(soon(t), method, new(testgrpc.Empty), new(testgrpc.Empty))
			seen = append(seen, outcome(err))
			stream, err := conn.NewStream(soon(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			require.NoError(t, err)
			_ = stream.SendMsg(new(testgrpc.Empty)) // the response may have arrived
			require.NoError(t, stream.CloseSend())
			seen = append(seen, outcome(stream.RecvMsg(new(testgrpc.Empty))))
		}
		return seen
	})
}

func TestDeadlineTravels(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		var seen []any
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				deadline, ok := ctx.Deadline()
				seen = append(seen, ok, time.Until(deadline) > time.Minute)
				return echoUnary(ctx, request)
			},
		}}))
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for _, ctx := range []context.Context{ctx, context.Background()} {
			_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
			require.NoError(t, err)
		}
		return seen
	})
}

func TestContextEnds(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		entered, left := make(chan struct{}, 1), make(chan error, 1)
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				entered <- struct{}{}
				<-ctx.Done()
				left <- ctx.Err()
				return nil, ctx.Err()
			},
		}}))
		var seen []any
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-entered; cancel() }()
		_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
		seen = append(seen, outcome(err), <-left)

		ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err = client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
		seen = append(seen, status.Code(err))

		ctx, cancel = context.WithCancel(context.Background())
		cancel()
		_, err = client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
		return append(seen, outcome(err))
	})
}

func TestMetadataThatIsNotSent(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		handlers := map[string]codes.Code{}
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{
			unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				handlers["header"] = status.Code(grpc.SendHeader(ctx, metadata.Pairs("x bad", "1")))
				return echoUnary(ctx, request)
			},
		}}))
		var seen []any
		for _, pair := range [][2]string{{"x bad", "1"}, {"x-ä", "1"}, {"x-value", "ä"}, {"x-value", "a\nb"}, {"", "1"}} {
			ctx := metadata.NewOutgoingContext(soon(t), metadata.MD{pair[0]: {pair[1]}})
			_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
			seen = append(seen, status.Code(err))
			_, err = client.FullDuplexCall(ctx)
			seen = append(seen, status.Code(err))
		}
		return append(seen, handlers)
	})
}

func TestPeers(t *testing.T) {
	var atServer *peer.Peer
	client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			atServer, _ = peer.FromContext(ctx)
			return echoUnary(ctx, request)
		},
	}}))
	var atClient peer.Peer
	_, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest), grpc.Peer(&atClient))
	require.NoError(t, err)
	require.NotNil(t, atServer)
	assert.NotEqual(t, atClient.Addr.String(), atServer.Addr.String())
	for _, one := range []*peer.Peer{atServer, &atClient} {
		assert.IsType(t, &net.TCPAddr{}, one.Addr)
		assert.Equal(t, "insecure", one.AuthInfo.AuthType())
	}
}

func TestErrorsAreBoxcarsToo(t *testing.T) {
	var client testgrpc.TestServiceClient
	for _, full := range []error{
		boxcargrpc.NotProcessed(status.Error(codes.ResourceExhausted, "full")),
		boxcargrpc.StatusError(boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeResourceExhausted, Message: "full"})),
	} {
		client = testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
			unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) { return nil, full },
		}}))
		_, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest))
		var failed *boxcarrpc.Error
		require.ErrorAs(t, err, &failed)
		assert.False(t, failed.Processed, "so that it may be sent again")
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, "full", failed.Message)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
	assert.True(t, errors.Is(err, context.Canceled))
}

// The error of a handler's own call does not mean that the handler has not acted.
func TestErrorOfNestedCallCountsAsProcessed(t *testing.T) {
	down := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			return nil, boxcargrpc.NotProcessed(status.Error(codes.Unavailable, "ask another"))
		},
	}}))
	calls := 0
	up := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			calls++ // the handler's effect
			return down.UnaryCall(ctx, request)
		},
	}}))
	_, err := up.UnaryCall(soon(t), new(testgrpc.SimpleRequest))
	var failed *boxcarrpc.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.True(t, failed.Processed)
	assert.Equal(t, 1, calls)
}

func TestAPanicIsContained(t *testing.T) {
	client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) { panic("oh") },
	}}))
	_, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest))
	require.Equal(t, codes.Internal, status.Code(err))
	_, err = client.EmptyCall(soon(t), new(testgrpc.Empty))
	require.NoError(t, err)
}
