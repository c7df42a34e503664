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

// ClientOptions are what a client does beside calling. The zero value, and a nil
// *ClientOptions, mean nothing.
type ClientOptions struct {
	// UnaryInterceptors are around every unary call, the first outermost.
	UnaryInterceptors []grpc.UnaryClientInterceptor
	// StreamInterceptors are around every stream, the first outermost.
	StreamInterceptors []grpc.StreamClientInterceptor
	// CallOptions come before the options of each call.
	CallOptions []grpc.CallOption
	// Credentials add metadata to each call. Those that require transport security
	// need a pool with TLS.
	Credentials []credentials.PerRPCCredentials
	// Name is what interceptors see as the target, and credentials as the host of
	// the audience. The default is "boxcar".
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

// NewClient returns a connection for generated stubs whose calls go over the
// pool; opts may be nil. It never connects by itself: its state is idle for ever,
// and the pool's [boxcarrpc.Pool.WaitReady] tells what a program may want to know.
// Calls that begin after its Close fail with CANCELED, as gRPC's do; the pool stays
// open. It is safe for concurrent use.
//
// The pool's options decide what gRPC's service config does elsewhere: which
// methods may be sent again ([Methods] reads that from the services'
// descriptions), how many calls at a time, how long they may wait. A call without
// a deadline gets the pool's CallTimeout; gRPC has none.
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
			return nil, errors.New("boxcargrpc: credentials that require transport security need a pool with TLS")
		}
	}
	// The last interceptors do the work, so that the connection's own machinery
	// never begins.
	return grpc.NewClient("passthrough:///"+o.Name,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(noDialing),
		grpc.WithDefaultCallOptions(o.CallOptions...),
		grpc.WithChainUnaryInterceptor(append(o.UnaryInterceptors[:len(o.UnaryInterceptors):len(o.UnaryInterceptors)], c.invoke)...),
		grpc.WithChainStreamInterceptor(append(o.StreamInterceptors[:len(o.StreamInterceptors):len(o.StreamInterceptors)], c.newStream)...),
	)
}

// noDialing answers a Connect that nobody needs.
func noDialing(context.Context, string) (net.Conn, error) {
	return nil, errors.New("boxcargrpc: the connection is of no use: calls go over a pool")
}

// checkOpen returns an error if the connection has been closed.
func checkOpen(cc *grpc.ClientConn) error {
	if cc.GetState() == connectivity.Shutdown {
		return status.Error(codes.Canceled, "boxcargrpc: the client connection is closed")
	}
	return nil
}
