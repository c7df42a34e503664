package main

import (
	"context"
	"crypto/tls"
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

func serveGRPC(config *tls.Config) (string, error) {
	call := func(request []byte) ([]byte, error) { return respond(request), nil }
	methods := map[string]func(request []byte) ([]byte, error){"Call": call}
	return listen(grpcbytes.NewServer("bench", methods, grpc.Creds(transport(config))).Serve)
}

func transport(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config)
}

// A grpcClient distributes its callers over its connections.
type grpcClient struct{ grpcbytes.Conns }

func connectGRPC(conns int) func(string, int, *tls.Config) (client, error) {
	return func(address string, _ int, config *tls.Config) (client, error) {
		c, err := grpcbytes.Connect(address, conns, transport(config))
		return grpcClient{c}, err
	}
}

func (c grpcClient) call(ctx context.Context, caller int, request, dst []byte) ([]byte, error) {
	err := c.Conns[caller%len(c.Conns)].Invoke(ctx, benchMethod, &request, &dst)
	return dst, err
}

type drpcHandler struct{}

func (drpcHandler) HandleRPC(stream drpc.Stream, _ string) error {
	var request []byte
	if err := stream.MsgRecv(&request, drpcCodec{}); err != nil {
		return err
	}
	response := respond(request)
	return stream.MsgSend(&response, drpcCodec{})
}

func serveDRPC(*tls.Config) (string, error) {
	return listen(func(l net.Listener) error {
		return drpcserver.New(drpcHandler{}).Serve(context.Background(), l)
	})
}

// A drpcClient is drpc with its pool, which opens a connection when none is idle.
type drpcClient struct {
	pool *drpcpool.Pool[string, drpcpool.Conn]
	conn drpcpool.Conn
}

func connectDRPC(address string, callers int, _ *tls.Config) (client, error) {
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
