package boxcargrpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc/boxcargrpc"
)

func TestMessageSizes(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{unary: echoUnary, duplex: echoDuplex}}))
		request := &testgrpc.SimpleRequest{Payload: payload("some bytes")}
		var seen []any
		for _, limit := range []int{5, 100} {
			for _, option := range []grpc.CallOption{grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit)} {
				response, err := client.UnaryCall(soon(t), request, option)
				seen = append(seen, status.Code(err), string(response.GetPayload().GetBody()))
				stream, err := client.FullDuplexCall(soon(t), option)
				require.NoError(t, err)
				seen = append(seen, status.Code(stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload("some bytes")})))
				_, err = stream.Recv()
				seen = append(seen, status.Code(err))
				require.NoError(t, stream.CloseSend())
			}
		}
		return seen
	})
}

// jsonCodec is a codec that a program registers.
type jsonCodec struct{ name string }

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (c jsonCodec) Name() string                     { return c.name }
func (c jsonCodec) String() string                   { return c.name }

// jsonCodecV2 returns its output in several buffers.
type jsonCodecV2 struct{ jsonCodec }

func (c jsonCodecV2) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.jsonCodec.Marshal(v)
	return mem.BufferSlice{mem.SliceBuffer(data[:1]), mem.SliceBuffer(data[1:])}, err
}

func (c jsonCodecV2) Unmarshal(data mem.BufferSlice, v any) error {
	return c.jsonCodec.Unmarshal(data.Materialize(), v)
}

func init() {
	encoding.RegisterCodec(jsonCodec{"test-json"})
	encoding.RegisterCodecV2(jsonCodecV2{jsonCodec{"test-json2"}})
}

func TestCodecs(t *testing.T) {
	for name, opts := range map[string][]grpc.CallOption{
		"default":                {},
		"protobuf":               {grpc.CallContentSubtype("proto")},
		"subtype":                {grpc.CallContentSubtype("test-json")},
		"subtype in capitals":    {grpc.CallContentSubtype("Test-JSON2")},
		"forced":                 {grpc.ForceCodec(jsonCodec{"test-json"})},
		"forced V2":              {grpc.ForceCodecV2(jsonCodecV2{jsonCodec{"Test-JSON"}})},
		"forced, other subtype":  {grpc.ForceCodec(jsonCodec{"something"}), grpc.CallContentSubtype("test-json2")},
		"unknown to the server":  {grpc.ForceCodec(jsonCodec{"unknown"})},
		"unknown to both":        {grpc.CallContentSubtype("unknown")},
		"cannot marshal":         {grpc.ForceCodecV2(failingCodec{marshal: true})},
		"cannot read the answer": {grpc.ForceCodecV2(failingCodec{})},
	} {
		t.Run(name, func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				client := testgrpc.NewTestServiceClient(open(t, setup{service: &scripted{unary: echoUnary, duplex: echoDuplex}}))
				seen := []any{received(client.UnaryCall(soon(t), &testgrpc.SimpleRequest{Payload: payload("hello")}, opts...))}
				if seen[0] != "hello" {
					_, err := client.UnaryCall(soon(t), &testgrpc.SimpleRequest{Payload: payload("hello")}, opts...)
					seen[0] = status.Code(err) // not the wording
				}
				stream, err := client.FullDuplexCall(soon(t), opts...)
				if err != nil {
					return append(seen, status.Code(err))
				}
				for _, text := range []string{"one", "two"} {
					err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(text)})
					var response *testgrpc.StreamingOutputCallResponse
					if err == nil || errors.Is(err, io.EOF) { // Recv returns the status
						response, err = stream.Recv()
					}
					if err != nil {
						return append(seen, status.Code(err))
					}
					seen = append(seen, string(response.GetPayload().GetBody()))
				}
				require.NoError(t, stream.CloseSend())
				return seen
			})
		})
	}
}

// failingCodec has protobuf's name and fails.
type failingCodec struct{ marshal bool }

func (c failingCodec) Marshal(v any) (mem.BufferSlice, error) {
	if c.marshal {
		return nil, errPlain
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}
func (failingCodec) Unmarshal(mem.BufferSlice, any) error { return errPlain }
func (failingCodec) Name() string                         { return "proto" }

// token is credentials of a call.
type token struct {
	pairs  map[string]string
	secure bool
	err    error
}

func (c token) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	info, ok := credentials.RequestInfoFromContext(ctx)
	if !ok || len(uri) != 1 {
		return nil, fmt.Errorf("asked for %v with %v", uri, info)
	}
	return c.pairs, c.err
}

func (c token) RequireTransportSecurity() bool { return c.secure }

func TestCredentials(t *testing.T) {
	for name, one := range map[string]token{
		"good":           {pairs: map[string]string{"X-Token": "secret"}},
		"fail":           {err: errPlain},
		"with a status":  {err: status.Error(codes.PermissionDenied, "not you")},
		"not theirs":     {err: status.Error(codes.NotFound, "no token")},
		"bad pair":       {pairs: map[string]string{"x token": "secret"}},
		"need transport": {pairs: map[string]string{"x-token": "secret"}, secure: true},
	} {
		t.Run(name, func(t *testing.T) {
			alike(t, func(t *testing.T, open transport) any {
				s := setup{service: &scripted{
					unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
						md, _ := metadata.FromIncomingContext(ctx)
						return &testgrpc.SimpleResponse{Payload: payload(fmt.Sprint(md["x-token"], md["x-always"]))}, nil
					},
					duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
						md, _ := metadata.FromIncomingContext(stream.Context())
						return status.Error(codes.DataLoss, fmt.Sprint(md["x-token"], md["x-always"]))
					},
				}}
				s.client.Credentials = []credentials.PerRPCCredentials{token{pairs: map[string]string{"x-always": "1"}}}
				client := testgrpc.NewTestServiceClient(open(t, s))
				response, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest), grpc.PerRPCCredentials(one))
				seen := []any{string(response.GetPayload().GetBody())}
				if one.err == nil || status.Code(one.err) != codes.Unknown {
					seen = append(seen, status.Code(err)) // gRPC maps a plain error to INTERNAL or UNAUTHENTICATED depending on its source
				} else {
					assert.Equal(t, codes.Unauthenticated == status.Code(err) || codes.Internal == status.Code(err), true)
				}
				_, err = client.UnaryCall(soon(t), new(testgrpc.SimpleRequest))
				seen = append(seen, outcome(err))
				stream, err := client.FullDuplexCall(soon(t), grpc.PerRPCCredentials(one))
				if err != nil {
					return append(seen, err != nil)
				}
				return append(seen, received(stream.Recv()))
			})
		})
	}
}

// NewClient rejects credentials that require TLS if the pool has none.
func TestCredentialsThatNeedTLS(t *testing.T) {
	_, err := boxcargrpc.NewClient(boxcarPool(t, setup{}), &boxcargrpc.ClientOptions{Credentials: []credentials.PerRPCCredentials{token{secure: true}}})
	require.ErrorContains(t, err, "TLS")
}

func TestClientsOptionsAreNotChanged(t *testing.T) {
	pool := boxcarPool(t, setup{service: &scripted{unary: echoUnary}})
	room := make([]grpc.UnaryClientInterceptor, 0, 4)
	options := boxcargrpc.ClientOptions{UnaryInterceptors: room}
	for range 2 {
		conn, err := boxcargrpc.NewClient(pool, &options)
		require.NoError(t, err)
		defer conn.Close()
	}
	assert.Nil(t, room[:1][0])
}

func TestNilOptions(t *testing.T) {
	conn, err := boxcargrpc.NewClient(boxcarPool(t, setup{service: &scripted{unary: echoUnary}}), nil)
	require.NoError(t, err)
	_, err = testgrpc.NewTestServiceClient(conn).UnaryCall(soon(t), new(testgrpc.SimpleRequest))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	assert.Panics(t, func() {
		services := boxcargrpc.NewServices(nil)
		testgrpc.RegisterTestServiceServer(services, &scripted{})
		testgrpc.RegisterTestServiceServer(services, &scripted{})
	}, "twice")
	assert.Panics(t, func() {
		boxcargrpc.NewServices(nil).RegisterService(&testgrpc.TestService_ServiceDesc, errors.New("no service"))
	})
	assert.Panics(t, func() {
		services := boxcargrpc.NewServices(nil)
		_, err := services.Handle(t.Context(), "/none/None", nil, nil)
		require.Error(t, err)
		testgrpc.RegisterTestServiceServer(services, &scripted{})
	}, "after the first request")
}
