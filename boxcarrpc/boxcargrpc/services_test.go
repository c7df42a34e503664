package boxcargrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
)

// grpc-go's health service, called by its generated client.
func TestHealth(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		service := health.NewServer()
		client := grpc_health_v1.NewHealthClient(open(t, setup{register: func(r registrar) {
			grpc_health_v1.RegisterHealthServer(r, service)
		}}))
		service.SetServingStatus("jobs", grpc_health_v1.HealthCheckResponse_SERVING)
		var seen []any
		for _, name := range []string{"", "jobs", "none"} {
			response, err := client.Check(soon(t), &grpc_health_v1.HealthCheckRequest{Service: name})
			seen = append(seen, response.GetStatus(), outcome(err))
		}
		watch, err := client.Watch(soon(t), &grpc_health_v1.HealthCheckRequest{Service: "jobs"})
		require.NoError(t, err)
		for range 2 {
			response, err := watch.Recv()
			seen = append(seen, response.GetStatus(), outcome(err))
			service.SetServingStatus("jobs", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		}
		return seen
	})
}

// grpc-go's reflection, called by its generated client.
func TestReflection(t *testing.T) {
	alike(t, func(t *testing.T, open transport) any {
		client := grpc_reflection_v1.NewServerReflectionClient(open(t, setup{service: &scripted{}, register: func(r registrar) {
			reflection.Register(r)
		}}))
		stream, err := client.ServerReflectionInfo(soon(t))
		require.NoError(t, err)
		require.NoError(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		}))
		response, err := stream.Recv()
		require.NoError(t, err)
		var seen []any
		for _, one := range response.GetListServicesResponse().GetService() {
			seen = append(seen, one.GetName())
		}
		require.NoError(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "grpc.testing.TestService"},
		}))
		response, err = stream.Recv()
		require.NoError(t, err)
		for _, one := range response.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			require.NoError(t, proto.Unmarshal(one, &file))
			seen = append(seen, file.GetName())
		}
		require.NoError(t, stream.CloseSend())
		return append(seen, received(nil, recvError(stream)))
	})
}

func recvError(stream grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient) error {
	_, err := stream.Recv()
	return err
}

func TestServiceInfo(t *testing.T) {
	services, server := boxcargrpc.NewServices(nil), grpc.NewServer()
	for _, r := range []registrar{services, server} {
		testgrpc.RegisterTestServiceServer(r, &scripted{})
		grpc_health_v1.RegisterHealthServer(r, health.NewServer())
	}
	want, got := server.GetServiceInfo(), services.GetServiceInfo()
	require.Len(t, got, len(want))
	for name := range want {
		assert.ElementsMatch(t, want[name].Methods, got[name].Methods)
		assert.Equal(t, want[name].Metadata, got[name].Metadata)
	}
}

// Unknown methods go to Handler and StreamHandler.
func TestOtherHandlers(t *testing.T) {
	s := setup{service: &scripted{unary: echoUnary}}
	s.server.Handler = func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if method != "/other.Service/Unary" {
			return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound, Message: "here, too"}
		}
		return append(dst, request...), nil
	}
	s.server.StreamHandler = func(_ context.Context, method string, stream *boxcarrpc.ServerStream) error {
		message, err := stream.Receive(nil)
		if err != nil {
			return err
		}
		return stream.Send(message)
	}
	conn := overBoxcar(t, s)
	request, response := &testgrpc.SimpleResponse{Payload: payload("raw")}, new(testgrpc.SimpleResponse)
	require.NoError(t, conn.Invoke(soon(t), "/other.Service/Unary", request, response))
	require.Equal(t, "raw", string(response.GetPayload().GetBody()))
	err := conn.Invoke(soon(t), "/other.Service/None", request, response)
	require.Equal(t, codes.NotFound, status.Code(err))
	require.Equal(t, "here, too", status.Convert(err).Message())
	stream, err := conn.NewStream(soon(t), &grpc.StreamDesc{ServerStreams: true}, "/other.Service/Stream")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(request))
	require.Equal(t, "EOF", end(recvTwice(stream)))
	_, err = testgrpc.NewTestServiceClient(conn).UnaryCall(soon(t), new(testgrpc.SimpleRequest))
	require.NoError(t, err)

	err = conn.Invoke(soon(t), testgrpc.TestService_FullDuplexCall_FullMethodName, request, response)
	require.Equal(t, codes.Unimplemented, status.Code(err), "a stream is not called")
}

func recvTwice(stream grpc.ClientStream) error {
	if err := stream.RecvMsg(new(testgrpc.SimpleResponse)); err != nil {
		return err
	}
	return stream.RecvMsg(new(testgrpc.SimpleResponse))
}

// A program may call its services without a server.
func TestHandleWithoutAServer(t *testing.T) {
	services := boxcargrpc.NewServices(nil)
	testgrpc.RegisterTestServiceServer(services, &scripted{unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		_, known := peer.FromContext(ctx)
		assert.False(t, known)
		return echoUnary(ctx, request)
	}})
	request, err := proto.Marshal(&testgrpc.SimpleRequest{Payload: payload("p")})
	require.NoError(t, err)
	out, err := services.Handle(t.Context(), testgrpc.TestService_UnaryCall_FullMethodName, request, []byte("before"))
	require.NoError(t, err)
	var response testgrpc.SimpleResponse
	require.NoError(t, proto.Unmarshal(out[len("before"):], &response))
	require.Equal(t, "p", string(response.GetPayload().GetBody()))
}
