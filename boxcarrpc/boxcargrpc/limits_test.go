package boxcargrpc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
)

func TestLargeMessages(t *testing.T) {
	client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		unary: func(_ context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			return &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: make([]byte, request.GetResponseSize())}}, nil
		},
		duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			request, err := stream.Recv()
			if err != nil {
				return err
			}
			size := request.GetResponseParameters()[0].GetSize()
			return stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: &testgrpc.Payload{Body: make([]byte, size)}})
		},
	}}))
	const overhead = 1 << 10 // of the message around a payload
	for _, one := range []struct {
		request, response int
		code              codes.Code
	}{
		{boxcarrpc.MaxRequestBytes - overhead, boxcarrpc.MaxResponseBytes - overhead, codes.OK},
		{boxcarrpc.MaxRequestBytes, 0, codes.ResourceExhausted},
		{0, boxcarrpc.MaxResponseBytes, codes.ResourceExhausted},
	} {
		body := &testgrpc.Payload{Body: make([]byte, one.request)}
		response, err := client.UnaryCall(soon(t), &testgrpc.SimpleRequest{Payload: body, ResponseSize: int32(one.response)}, grpc.MaxCallSendMsgSize(1<<30))
		require.Equal(t, one.code, status.Code(err), err)
		if one.code == codes.OK {
			require.Len(t, response.GetPayload().GetBody(), one.response)
		}
		if one.code == codes.OK {
			body.Body, one.response = body.GetBody()[:1<<20], 1<<20 // more takes seconds under the race detector
		}
		stream, err := client.FullDuplexCall(soon(t))
		require.NoError(t, err)
		err = stream.Send(&testgrpc.StreamingOutputCallRequest{
			Payload: body, ResponseParameters: []*testgrpc.ResponseParameters{{Size: int32(one.response)}},
		})
		if err == nil {
			var answer *testgrpc.StreamingOutputCallResponse
			if answer, err = stream.Recv(); err == nil {
				require.Len(t, answer.GetPayload().GetBody(), one.response)
			}
		}
		require.Equal(t, one.code, status.Code(err), err)
		require.NoError(t, stream.CloseSend())
	}
}

// Metadata above the limit fails a call. A call that has already failed keeps its status.
func TestTooMuchMetadata(t *testing.T) {
	large := metadata.Pairs("x-large", strings.Repeat("x", boxcarrpc.MaxMetadataBytes))
	var failure error
	client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			if err := grpc.SetTrailer(ctx, large); err != nil {
				return nil, err
			}
			return new(testgrpc.SimpleResponse), failure
		},
		duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			stream.SetTrailer(large)
			return failure
		},
		output: func(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
			err := stream.SendHeader(large)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err), "as the handler sees it")
			return err
		},
	}}))
	ask := func(ctx context.Context) [2]codes.Code {
		_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
		r := [2]codes.Code{status.Code(err)}
		stream, err := client.FullDuplexCall(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		r[1] = status.Code(err)
		return r
	}
	assert.Equal(t, [2]codes.Code{codes.Internal, codes.Internal}, ask(soon(t)))
	failure = withDetails(t)
	assert.Equal(t, [2]codes.Code{codes.FailedPrecondition, codes.FailedPrecondition}, ask(soon(t)))
	assert.Equal(t, [2]codes.Code{codes.ResourceExhausted, codes.ResourceExhausted}, ask(metadata.NewOutgoingContext(soon(t), large)))
	stream, err := client.StreamingOutputCall(soon(t), new(testgrpc.StreamingOutputCallRequest))
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// An invalid trailer, for which SetTrailer returns no error, fails the stream.
func TestInvalidTrailerFailsTheStream(t *testing.T) {
	client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{
		duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			stream.SetTrailer(metadata.Pairs("x bad", "1"))
			return nil
		},
	}}))
	stream, err := client.FullDuplexCall(soon(t))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Internal, status.Code(err))
	require.ErrorContains(t, err, "x bad")
}

// Invalid requests from a client without gRPC get an error.
func TestInvalidRequests(t *testing.T) {
	pool := boxcarPool(t, setup{service: &scripted{unary: echoUnary, duplex: echoDuplex}})
	for _, one := range []struct {
		metadata boxcarrpc.Metadata
		request  string
		code     boxcarrpc.Code
	}{
		{nil, "", boxcarrpc.CodeOK},
		{nil, "\xff\xff", boxcarrpc.CodeInternal},
		{boxcarrpc.Metadata(nil).Append("content-type", "text/html"), "", boxcarrpc.CodeInternal},
		{boxcarrpc.Metadata(nil).Append("content-type", "application/grpc+none"), "", boxcarrpc.CodeInternal},
		{boxcarrpc.Metadata(nil).Append("\x00", "\xff").Append("a", ""), "", boxcarrpc.CodeOK},
	} {
		info := boxcarrpc.CallInfo{Metadata: one.metadata}
		_, err := pool.CallWith(soon(t), testgrpc.TestService_UnaryCall_FullMethodName, []byte(one.request), nil, &info)
		assert.Equal(t, one.code, boxcarrpc.CodeOf(err), err)
		stream, err := pool.Stream(soon(t), testgrpc.TestService_FullDuplexCall_FullMethodName, one.metadata)
		require.NoError(t, err)
		if err = stream.Send([]byte(one.request)); err == nil {
			_, err = stream.Receive(nil)
		}
		assert.Equal(t, one.code, boxcarrpc.CodeOf(err), err)
		stream.Close()
	}
}

// Invalid details, or details of another status, are ignored.
func TestInvalidStatusDetails(t *testing.T) {
	other, err := proto.Marshal(&spb.Status{Code: int32(codes.Aborted), Message: "another"})
	require.NoError(t, err)
	for _, details := range []string{"", "\xff", string(other)} {
		s := setup{}
		s.server.Handler = func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
			if err := boxcarrpc.SetTrailer(ctx, boxcarrpc.Metadata(nil).Append("grpc-status-details-bin", details)); err != nil {
				return dst, err
			}
			return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound, Message: "no"}
		}
		conn, err := boxcargrpc.NewClient(boxcarPool(t, s), nil)
		require.NoError(t, err)
		defer conn.Close()
		err = conn.Invoke(soon(t), "/any.Service/Method", new(testgrpc.Empty), new(testgrpc.Empty))
		require.Equal(t, "NotFound: no", status.Code(err).String()+": "+status.Convert(err).Message())
		require.Empty(t, status.Convert(err).Details())
	}
}
