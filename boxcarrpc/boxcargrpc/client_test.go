package boxcargrpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
)

// Without a server a call fails when its context ends: with UNAVAILABLE after its
// deadline, and as not processed.
func TestNoServer(t *testing.T) {
	listener := listen(t)
	nobody := listener.Addr().String()
	require.NoError(t, listener.Close())
	pool, err := boxcarrpc.NewPool(discovery.Static(nobody), nil)
	require.NoError(t, err)
	defer pool.Close()
	conn, err := boxcargrpc.NewClient(pool, nil)
	require.NoError(t, err)
	defer conn.Close()
	client := testgrpc.NewTestServiceClient(conn)
	ask := func(ctx context.Context, want codes.Code) {
		t.Helper()
		_, err := client.EmptyCall(ctx, new(testgrpc.Empty), grpc.WaitForReady(true))
		require.Equal(t, want, status.Code(err), err)
		require.ErrorIs(t, err, ctx.Err())
		require.ErrorIs(t, err, boxcarrpc.ErrNoServer)
		stream, err := client.FullDuplexCall(ctx)
		require.Nil(t, stream)
		require.NotEqual(t, codes.OK, status.Code(err))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	ask(ctx, codes.Unavailable)
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	ask(ctx, codes.Canceled)
}

// Connect has no effect on calls, and leaves no goroutine after Close.
func TestConnectHasNoEffect(t *testing.T) {
	conn := overBoxcar(t, setup{service: &scripted{unary: echoUnary}})
	conn.Connect()
	require.Equal(t, "", received(testgrpc.NewTestServiceClient(conn).UnaryCall(soon(t), new(testgrpc.SimpleRequest))))
	require.NoError(t, conn.Close())
}

func TestMethods(t *testing.T) {
	level := func(l descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodOptions {
		return &descriptorpb.MethodOptions{IdempotencyLevel: &l}
	}
	method := func(name string, options *descriptorpb.MethodOptions) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: proto.String(".a.b.M"), OutputType: proto.String(".a.b.M"), Options: options}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("f.proto"), Package: proto.String("a.b"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M")}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Read", level(descriptorpb.MethodOptions_NO_SIDE_EFFECTS)),
			method("Set", level(descriptorpb.MethodOptions_IDEMPOTENT)),
			method("Add", level(descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN)),
			method("Say", nil),
		}}},
	}, nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]boxcarrpc.Method{"/a.b.S/Read": {Idempotent: true}, "/a.b.S/Set": {Idempotent: true}}, boxcargrpc.Methods(file))
}

func TestCallsOfAClosedConnectionAreCanceled(t *testing.T) {
	conn := overBoxcar(t, setup{service: &scripted{unary: echoUnary}})
	client := testgrpc.NewTestServiceClient(conn)
	require.Equal(t, "", received(client.UnaryCall(soon(t), new(testgrpc.SimpleRequest))))
	require.NoError(t, conn.Close())
	_, err := client.UnaryCall(soon(t), new(testgrpc.SimpleRequest))
	require.Equal(t, codes.Canceled, status.Code(err))
	_, err = client.FullDuplexCall(soon(t))
	require.Equal(t, codes.Canceled, status.Code(err))
}
