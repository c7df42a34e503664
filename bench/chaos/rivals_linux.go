package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"docstore/bench/internal/grpcbytes"
	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

// A handle answers a request: it appends the response to dst.
type handle func(request, dst []byte) ([]byte, error)

// A rival is an RPC under test.
type rival struct {
	name   string
	exact  bool // its audit must find no error
	server func(handle) served
	client func(addresses []string, callers *host) (client, error)
}

// A client makes calls. untouched means that a failed call was certainly not processed.
type client interface {
	call(ctx context.Context, idempotent bool, request, dst []byte) (out []byte, untouched bool, err error)
	Close() error
}

var rivals = []rival{
	{"boxcar", true, newBoxcarServer, newBoxcarClient(0)},
	{"boxcar-hedged", true, newBoxcarServer, newBoxcarClient(hedgeAfter)},
	{"grpc", false, newGRPCServer, newGRPCClient},
}

// rivalNamed returns a rival. The name must exist.
func rivalNamed(name string) rival {
	return rivals[slices.IndexFunc(rivals, func(r rival) bool { return r.name == name })]
}

// The methods: an idempotent one, and another one.
const (
	methodTwice = "/chaos/Twice"
	methodOnce  = "/chaos/Once"
)

func methodOf(idempotent bool) string {
	if idempotent {
		return methodTwice
	}
	return methodOnce
}

func newBoxcarServer(h handle) served {
	return boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return h(request, dst)
	}, &boxcarrpc.ServerOptions{Insecure: true})
}

type boxcarClient struct{ *boxcarrpc.Pool }

// hedgeAfter is much longer than a call without faults.
const hedgeAfter = 50 * time.Millisecond

func newBoxcarClient(hedgeAfter time.Duration) func(addresses []string, callers *host) (client, error) {
	return func(addresses []string, callers *host) (client, error) {
		pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
			Size:     32,
			Methods:  map[string]boxcarrpc.Method{methodTwice: {Idempotent: true, HedgeAfter: hedgeAfter}},
			Dialer:   callers.dial,
			Insecure: true,
		})
		return boxcarClient{pool}, err
	}
}

func (c boxcarClient) call(ctx context.Context, idempotent bool, request, dst []byte) ([]byte, bool, error) {
	out, err := c.Call(ctx, methodOf(idempotent), request, dst)
	var e *boxcarrpc.Error
	return out, errors.As(err, &e) && !e.Processed, err
}

type grpcServer struct{ *grpc.Server }

func newGRPCServer(h handle) served {
	method := func(request []byte) ([]byte, error) { return h(request, nil) }
	return grpcServer{grpcbytes.NewServer("chaos", map[string]func(request []byte) ([]byte, error){"Once": method, "Twice": method},
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))}
}

func (s grpcServer) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	s.GracefulStop()
	return nil
}

// grpcConfig selects round robin, and retries of the idempotent method.
const grpcConfig = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"methodConfig": [{
		"name": [{"service": "chaos", "method": "Twice"}],
		"retryPolicy": {
			"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}]
}`

type grpcClient struct{ *grpc.ClientConn }

// newGRPCClient sends keep-alives on idle connections every 10 s, the minimum of grpc-go, with a
// timeout of 1 s, as Boxcar.
func newGRPCClient(addresses []string, callers *host) (client, error) {
	r := manual.NewBuilderWithScheme("chaos")
	var state resolver.State
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("chaos:///servers", grpc.WithResolvers(r),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(grpcConfig),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(grpcbytes.Codec{})),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return callers.dial(ctx, address) }))
	return grpcClient{conn}, err
}

func (c grpcClient) call(ctx context.Context, idempotent bool, request, dst []byte) ([]byte, bool, error) {
	err := c.Invoke(ctx, methodOf(idempotent), &request, &dst)
	return dst, false, err
}
