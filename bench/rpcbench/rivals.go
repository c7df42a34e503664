package main

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcpool"
	"storj.io/drpc/drpcserver"

	"docstore/bench/internal/grpcbytes"
)

// drpcCodec is a codec of *[]byte, as grpcbytes.Codec.
type drpcCodec struct{}

func (drpcCodec) Marshal(message drpc.Message) ([]byte, error) { return *message.(*[]byte), nil }
func (drpcCodec) Unmarshal(data []byte, message drpc.Message) error {
	b := message.(*[]byte)
	*b = append((*b)[:0], data...)
	return nil
}

func serveGRPC() (string, error) { return listen(newGRPCServer().Serve) }

func serveGRPCTLS() (string, error) {
	config, err := serverTLS()
	if err != nil {
		return "", err
	}
	return listen(newGRPCServer(grpc.Creds(credentials.NewTLS(config))).Serve)
}

func newGRPCServer(options ...grpc.ServerOption) *grpc.Server {
	return grpcbytes.NewServer("bench", map[string]func(request []byte) ([]byte, error){
		"Call": func(request []byte) ([]byte, error) {
			return appendResponse(make([]byte, 0, responseLength(request)), request), nil
		},
	}, options...)
}

// A grpcClient distributes its callers over its connections.
type grpcClient []*grpc.ClientConn

func connectGRPC(conns int) func(string, int) (client, error) {
	return connectGRPCWith(conns, insecure.NewCredentials())
}

func connectGRPCTLS(conns int) func(string, int) (client, error) {
	return connectGRPCWith(conns, credentials.NewTLS(clientTLS))
}

func connectGRPCWith(conns int, transport credentials.TransportCredentials) func(string, int) (client, error) {
	return func(address string, _ int) (client, error) {
		c := make(grpcClient, conns)
		for i := range c {
			conn, err := grpc.NewClient("passthrough:///"+address,
				grpc.WithTransportCredentials(transport),
				grpc.WithDefaultCallOptions(grpc.ForceCodecV2(grpcbytes.Codec{})))
			if err != nil {
				return nil, err
			}
			c[i] = conn
		}
		return c, nil
	}
}

func (c grpcClient) call(ctx context.Context, caller int, request, dst []byte) ([]byte, error) {
	err := c[caller%len(c)].Invoke(ctx, benchMethod, &request, &dst)
	return dst, err
}

func (c grpcClient) Close() (err error) {
	for _, conn := range c {
		err = errors.Join(err, conn.Close())
	}
	return err
}

type drpcHandler struct{}

func (drpcHandler) HandleRPC(stream drpc.Stream, _ string) error {
	var request []byte
	if err := stream.MsgRecv(&request, drpcCodec{}); err != nil {
		return err
	}
	response := appendResponse(make([]byte, 0, responseLength(request)), request)
	return stream.MsgSend(&response, drpcCodec{})
}

func serveDRPC() (string, error) {
	return listen(func(l net.Listener) error {
		return drpcserver.New(drpcHandler{}).Serve(context.Background(), l)
	})
}

// A drpcClient is drpc with its pool, which opens a connection when none is idle.
type drpcClient struct {
	pool *drpcpool.Pool[string, drpcpool.Conn]
	conn drpcpool.Conn
}

func connectDRPC(address string, callers int) (client, error) {
	pool := drpcpool.New[string, drpcpool.Conn](drpcpool.Options{Capacity: callers})
	conn := pool.Get(context.Background(), address, func(ctx context.Context, address string) (drpcpool.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return drpcconn.New(conn), nil
	})
	return drpcClient{pool, conn}, nil
}

func (c drpcClient) call(ctx context.Context, _ int, request, dst []byte) ([]byte, error) {
	err := c.conn.Invoke(ctx, benchMethod, drpcCodec{}, &request, &dst)
	return dst, err
}

func (c drpcClient) Close() error { return errors.Join(c.conn.Close(), c.pool.Close()) }
