package boxcargrpc

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// DefaultName is the default of ClientOptions.Name.
const DefaultName = "boxcar"

// ClientOptions are the options of a client. The zero value, and a nil *ClientOptions,
// mean the defaults.
type ClientOptions struct {
	// UnaryInterceptors are called for every unary call, the first outermost.
	UnaryInterceptors []grpc.UnaryClientInterceptor
	// StreamInterceptors are called for every stream, the first outermost.
	StreamInterceptors []grpc.StreamClientInterceptor
	// CallOptions apply to each call, before its own options.
	CallOptions []grpc.CallOption
	// Credentials add metadata to each call. If they require transport security, the
	// pool must have TLS.
	Credentials []credentials.PerRPCCredentials
	// Name is the target that interceptors see, and the host of the audience for
	// credentials. The default is "boxcar".
	Name string
}

// A client makes the calls of a grpc.ClientConn over a pool.
type client struct {
	pool        *boxcarrpc.Pool
	codec       codec
	credentials []credentials.PerRPCCredentials
	name        string
	secure      bool // the pool has TLS
}

// NewClient returns a connection for generated stubs that makes its calls with the pool.
// opts may be nil. The connection does not connect itself and its state is always idle;
// use [boxcarrpc.Pool.WaitReady] to wait for servers. Calls after its Close fail with
// CANCELED, as in gRPC; Close does not close the pool. It is safe for concurrent use.
//
// The pool's options replace gRPC's service config: which methods may be retried (see
// [Methods]), the number of concurrent calls, and how long calls wait. A call without a
// deadline has the pool's CallTimeout; gRPC has no default.
func NewClient(pool *boxcarrpc.Pool, opts *ClientOptions) (*grpc.ClientConn, error) {
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = DefaultName
	}
	c := &client{pool: pool, codec: protobuf(), credentials: o.Credentials, name: o.Name, secure: pool.HasTLS()}
	for _, one := range o.Credentials {
		if one.RequireTransportSecurity() && !c.secure {
			return nil, errors.New("boxcargrpc: the credentials require transport security: use a pool with TLS")
		}
	}
	// The innermost interceptors make the calls, so that grpc-go never connects.
	return grpc.NewClient("passthrough:///"+o.Name,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(noDialing),
		grpc.WithDefaultCallOptions(o.CallOptions...),
		grpc.WithChainUnaryInterceptor(append(o.UnaryInterceptors[:len(o.UnaryInterceptors):len(o.UnaryInterceptors)], c.invoke)...),
		grpc.WithChainStreamInterceptor(append(o.StreamInterceptors[:len(o.StreamInterceptors):len(o.StreamInterceptors)], c.newStream)...),
	)
}

// noDialing is the dialer of the connection, which is not used for calls.
func noDialing(context.Context, string) (net.Conn, error) {
	return nil, errors.New("boxcargrpc: the connection cannot connect: calls use a pool")
}

// checkOpen returns an error if the connection has been closed.
func checkOpen(cc *grpc.ClientConn) error {
	if cc.GetState() == connectivity.Shutdown {
		return status.Error(codes.Canceled, "boxcargrpc: the client connection is closed")
	}
	return nil
}
