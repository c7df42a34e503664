package boxcargrpc_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc/boxcargrpc"
)

// refuseFirst returns a service whose first n streams fail, before or after the first
// message. The others echo.
type refuseFirst struct {
	n       int32
	err     error
	message bool

	streams atomic.Int32
}

func (r *refuseFirst) duplex(stream testgrpc.TestService_FullDuplexCallServer) error {
	if r.streams.Add(1) > r.n {
		_ = stream.SetHeader(metadata.Pairs("x-served", "yes"))
		return echoDuplex(stream)
	}
	if r.message {
		if err := stream.Send(new(testgrpc.StreamingOutputCallResponse)); err != nil {
			return err
		}
	}
	return r.err
}

var stopping = boxcargrpc.NotProcessed(status.Error(codes.Unavailable, "about to stop"))

// A refused stream is opened a second time, and its messages are sent again.
func TestRefusedStreamIsRetriedOnce(t *testing.T) {
	for _, one := range []struct {
		name    string
		service *refuseFirst
		want    codes.Code
		streams int32
	}{
		{"not refused", &refuseFirst{}, codes.OK, 1},
		{"refused once", &refuseFirst{n: 1, err: stopping}, codes.OK, 2},
		{"refused twice", &refuseFirst{n: 2, err: stopping}, codes.Unavailable, 2},
		{"failed", &refuseFirst{n: 1, err: status.Error(codes.Unavailable, "within")}, codes.Unavailable, 1},
		{"refused for load", &refuseFirst{n: 1, err: boxcargrpc.NotProcessed(status.Error(codes.ResourceExhausted, "full"))}, codes.ResourceExhausted, 1},
		{"refused after a message", &refuseFirst{n: 1, err: stopping, message: true}, codes.Unavailable, 1},
	} {
		t.Run(one.name, func(t *testing.T) {
			client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{duplex: one.service.duplex}}))
			stream, err := client.FullDuplexCall(soon(t))
			require.NoError(t, err)
			for i := range 3 {
				if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(fmt.Sprint(i))}); err != nil {
					require.Equal(t, "EOF", end(err))
					break
				}
			}
			require.NoError(t, stream.CloseSend())
			if one.service.message {
				_, err := stream.Recv()
				require.NoError(t, err)
			}
			for i := 0; i < 3 && err == nil; i++ {
				var response *testgrpc.StreamingOutputCallResponse
				if response, err = stream.Recv(); err == nil {
					require.Equal(t, fmt.Sprint(i), string(response.GetPayload().GetBody()))
				}
			}
			require.Equal(t, one.want, status.Code(err))
			if err == nil {
				require.Equal(t, "EOF", received(stream.Recv()))
				header, err := stream.Header()
				require.NoError(t, err)
				require.Equal(t, []string{"yes"}, header["x-served"])
			}
			assert.Equal(t, one.streams, one.service.streams.Load())
		})
	}
}

// A committed stream, or one with too many sent bytes, is not retried.
func TestRefusedStreamThatIsNotRetried(t *testing.T) {
	large := strings.Repeat("x", 200<<10)
	for name, commit := range map[string]func(testgrpc.TestService_FullDuplexCallClient){
		"header":  func(s testgrpc.TestService_FullDuplexCallClient) { _, _ = s.Header() },
		"context": func(s testgrpc.TestService_FullDuplexCallClient) { _ = s.Context() },
		"large": func(s testgrpc.TestService_FullDuplexCallClient) {
			_ = s.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(large)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := refuseFirst{n: 1, err: stopping}
			client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{duplex: service.duplex}}))
			stream, err := client.FullDuplexCall(soon(t))
			require.NoError(t, err)
			commit(stream)
			_, err = stream.Recv()
			require.Equal(t, codes.Unavailable, status.Code(err))
			require.Equal(t, int32(1), service.streams.Load())
		})
	}
}

// The stream is refused while one goroutine sends and another receives. No message is
// lost, duplicated or reordered.
func TestStreamIsRefusedWhileSending(t *testing.T) {
	const streams, messages = 100, 50
	for range streams {
		service := &refuseFirst{n: 1, err: stopping}
		client := testgrpc.NewTestServiceClient(overBoxcar(t, setup{service: &scripted{duplex: service.duplex}}))
		stream, err := client.FullDuplexCall(soon(t))
		require.NoError(t, err)
		sent := make(chan error, 1)
		go func() {
			for i := range messages {
				if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(fmt.Sprint(i))}); err != nil {
					sent <- err
					return
				}
			}
			sent <- stream.CloseSend()
		}()
		for i := range messages {
			require.Equal(t, fmt.Sprint(i), received(stream.Recv()))
		}
		require.Equal(t, "EOF", received(stream.Recv()))
		require.NoError(t, <-sent)
	}
}
