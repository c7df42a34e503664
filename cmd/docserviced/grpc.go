package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/server"
	"docstore/internal/bounded"
	"docstore/internal/listen"
)

// Limits of the gRPC listener. Its bytes count against the budget of messages: see package
// bounded.
const (
	grpcMaxConns         = 1 << 10 // one more is closed, or replaces one of a client that has not authenticated
	grpcMaxStreams       = 1 << 7  // concurrent calls of a connection
	grpcRequestBytes     = 4 << 20
	grpcHeaderBytes      = 16 << 10
	grpcHandshakeTimeout = 5 * time.Second
	grpcIdleTimeout      = 5 * time.Minute
	grpcMinPing          = 10 * time.Second // a client that pings more often is disconnected
	// grpcHealthInterval is the maximum delay of a change for a watcher of the health.
	grpcHealthInterval = 200 * time.Millisecond
	// Limits of concurrent health streams, which take 16 KiB each. If credentials are
	// required, streams of clients without them are limited separately, in number and
	// duration. One client may have as many as connections, unauthenticated an eighth.
	grpcMaxWatches             = 1 << 10
	grpcUnauthenticatedWatches = 1 << 6
	grpcUnauthenticatedWatch   = 10 * time.Minute
)

// grpcProtocol is the server.Protocol of gRPC: documents, health and reflection. It has no
// slots: clients need a load balancer to use several servers.
type grpcProtocol struct {
	*server.Server // set by Open
	address        string
	tracer         *tracer // nil: none
	// requireCredentials says that clients must authenticate.
	requireCredentials bool
	maxConnAge         time.Duration // 0: no limit
	listener           *bounded.Listener
	server             *grpc.Server // nil: not started
	// Open health streams of authenticated and of unauthenticated clients. If no
	// credentials are required, all count as authenticated.
	watches, unauthenticatedWatches atomic.Int64
}

// Name implements server.Protocol.
func (g *grpcProtocol) Name() string { return "grpc" }

// Open implements server.Protocol.
func (g *grpcProtocol) Open(d *server.Server) error {
	listener, err := listen.TCP("--grpc", g.address)
	if err != nil {
		return err
	}
	g.Server = d
	g.listener = bounded.New(listener, bounded.Options{
		Name: g.Name(), MaxConns: grpcMaxConns, ClientConns: d.ClientConns(grpcMaxConns), RequireCredentials: g.requireCredentials, CountCalls: true, Budget: d.Messages(), Logger: d.Logger(),
	})
	return nil
}

// Start implements server.Protocol.
func (g *grpcProtocol) Start(handler boxcarrpc.Handler) {
	options := []grpc.ServerOption{
		grpc.StatsHandler(&grpcCounter{listener: g.listener}),
		grpc.InTapHandle(g.tapCall),
		grpc.ChainUnaryInterceptor(g.containPanic, g.admitCall, g.tracer.call), // outermost first
		grpc.ChainStreamInterceptor(g.admitStream),
		grpc.ForceServerCodecV2(newGRPCCodec()),
		grpc.MaxRecvMsgSize(grpcRequestBytes),
		grpc.MaxConcurrentStreams(grpcMaxStreams),
		grpc.MaxHeaderListSize(grpcHeaderBytes),
		grpc.ConnectionTimeout(grpcHandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: grpcIdleTimeout, MaxConnectionAge: g.maxConnAge, MaxConnectionAgeGrace: grpcAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcMinPing, PermitWithoutStream: true}),
	}
	if config := g.Authenticator().TLS("h2"); config != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(config)))
	}
	g.server = grpc.NewServer(options...)
	registerDocuments(g.server, handler)
	grpc_health_v1.RegisterHealthServer(g.server, &grpcHealth{protocol: g, unauthenticatedWatch: grpcUnauthenticatedWatch})
	reflection.Register(g.server)
	g.Go(func() {
		if err := g.server.Serve(g.listener); err != nil {
			g.Note(err, grpc.ErrServerStopped)
		}
	})
}

// Shutdown implements server.Protocol.
func (g *grpcProtocol) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, g.server.Stop)
	g.server.GracefulStop()
	if !stop() {
		return ctx.Err()
	}
	return nil
}

// Close implements server.Protocol.
func (g *grpcProtocol) Close() error {
	if g.server == nil {
		return g.listener.Close()
	}
	g.server.Stop()
	return nil
}

// identify returns the client of a call, by "authorization: Bearer TOKEN" or by its
// certificate, or an error if it is not allowed.
func (g *grpcProtocol) identify(ctx context.Context) (*boxcarrpc.Peer, error) {
	client := &boxcarrpc.Peer{Address: new(net.TCPAddr)}
	var state *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		client.Address = p.Addr
		if info, ok := p.AuthInfo.(grpccredentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			state = &info.State
			if err := g.Authenticator().VerifyConn(ctx, state); err != nil {
				return nil, status.Error(codes.Unauthenticated, err.Error())
			}
		}
	}
	token := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		token = credentials.BearerToken(values[0])
	}
	var err error
	if client.Identity, err = g.Authenticator().Identify(state, token); err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return client, nil
}

// containPanic turns a panic of a handler into an error, as the other listeners do.
func (g *grpcProtocol) containPanic(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if v := recover(); v != nil {
			g.Logger().Error("handler panicked", "method", info.FullMethod, "panic", v, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the handler panicked; see the server's log")
		}
	}()
	return handler(ctx, request)
}

func (g *grpcProtocol) admitCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	client, leave, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx = server.WithIdentity(ctx, client)
	if isBatch(ctx) {
		ctx = boxcarrpc.WithBatch(ctx)
	}
	call, _ := ctx.Value(grpcCallKey{}).(*grpcCall)
	if call == nil || call.conn == nil {
		return handler(ctx, request)
	}
	ctx, call.response = call.conn.NewResponse(ctx)
	answer, err := handler(ctx, request)
	if message, ok := answer.(grpcBytes); ok && err == nil {
		return call.queue(ctx, message)
	}
	return answer, err
}

func (g *grpcProtocol) admitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	identity, leave, err := g.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	if !identity.Authenticated() {
		return handler(service, stream)
	}
	return g.whileValid(service, stream, identity, handler)
}

// A watchLimit is a limit of concurrent health streams.
type watchLimit struct {
	open *atomic.Int64
	most int64
	of   string
}

func (l *watchLimit) err() error {
	return status.Errorf(codes.ResourceExhausted, "too many health streams: the limit is %d %s", l.most, l.of)
}

// watchLimits returns the limits for another health stream of the peer.
func (g *grpcProtocol) watchLimits(ctx context.Context) []watchLimit {
	client, err := g.identify(ctx)
	authenticated := err == nil && client.Identity.Authenticated()
	all := watchLimit{&g.watches, grpcMaxWatches, "for all clients; call Check"}
	share := int64(g.ClientConns(grpcMaxWatches)) // one for each connection
	if g.requireCredentials && !authenticated {
		share = grpcUnauthenticatedWatches / bounded.ClientShare
		all = watchLimit{&g.unauthenticatedWatches, grpcUnauthenticatedWatches, "for clients without a token or certificate; authenticate, or call Check"}
	}
	conn := bounded.ConnOf(ctx)
	if conn == nil {
		return []watchLimit{all}
	}
	return []watchLimit{all, {conn.Watches(), share, "for a client; call Check"}}
}

// admitWatch counts a health stream, and refuses it above a limit.
func (g *grpcProtocol) admitWatch(ctx context.Context) (leave func(), err error) {
	limits := g.watchLimits(ctx)
	leave = func() {
		for _, l := range limits {
			l.open.Add(-1)
		}
	}
	for _, l := range limits {
		if l.open.Add(1) > l.most && err == nil {
			err = l.err()
		}
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// tapCall refuses a health stream above a limit before grpc-go starts a goroutine for it.
func (g *grpcProtocol) tapCall(ctx context.Context, call *tap.Info) (context.Context, error) {
	if call.FullMethodName == grpc_health_v1.Health_Watch_FullMethodName {
		for _, l := range g.watchLimits(ctx) {
			if l.open.Load() >= l.most {
				return nil, l.err()
			}
		}
	}
	return ctx, nil
}

// admit checks the credentials of a call and the limits, which it shares with the Boxcar
// listener. Every client may call Check; streams of unauthenticated clients are limited.
// identity is that of the client, anonymous if it is unknown.
func (g *grpcProtocol) admit(ctx context.Context, method string) (identity boxcarrpc.Identity, leave func(), err error) {
	client, err := g.identify(ctx)
	conn := bounded.ConnOf(ctx)
	authenticated := err == nil && client.Identity.Authenticated()
	isHealth := strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
	if conn != nil && (authenticated || err == nil && !isHealth) {
		if full := conn.Authenticate(client.Identity); full != nil && !isHealth {
			return identity, nil, status.Error(codes.ResourceExhausted, full.Error())
		}
	}
	if isHealth {
		if method != grpc_health_v1.Health_Watch_FullMethodName {
			return identity, func() {}, nil
		}
		leave, err = g.admitWatch(ctx)
		if authenticated {
			identity = client.Identity
		}
		return identity, leave, err
	}
	if err != nil {
		return identity, nil, err
	}
	if leave, err = g.Boxcar().Admit(client, isBatch(ctx)); err != nil {
		var refused *boxcarrpc.Error
		if errors.As(err, &refused) {
			err = status.Error(codes.Code(refused.Code), refused.Message)
		}
	}
	return client.Identity, leave, err
}

// isBatch reports whether the metadata of a call has the priority of batch.
func isBatch(ctx context.Context) bool {
	return boxcarrpc.IsBatchPriority(strings.Join(metadata.ValueFromIncomingContext(ctx, boxcarrpc.PriorityKey), ","))
}

// grpcHealth reports over gRPC what /readyz reports, and NOT_SERVING while the server is
// draining: for the server as a whole, "", and for the document service.
type grpcHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	protocol             *grpcProtocol
	unauthenticatedWatch time.Duration

	mu struct {
		sync.Mutex
		status  grpc_health_v1.HealthCheckResponse_ServingStatus
		changed chan struct{} // nil: no watcher yet
	}
}

func (h *grpcHealth) Check(_ context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.known(request) {
		return nil, status.Errorf(codes.NotFound, "no service %s", request.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.status()}, nil
}

// Watch sends the health now and whenever it changes, until the daemon ends.
func (h *grpcHealth) Watch(request *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	var end <-chan time.Time
	if conn := bounded.ConnOf(stream.Context()); conn != nil && !conn.Authenticated() {
		timer := time.NewTimer(h.unauthenticatedWatch)
		defer timer.Stop()
		end = timer.C
	}
	for told := grpc_health_v1.HealthCheckResponse_UNKNOWN; ; {
		now, changed := h.latest()
		if !h.known(request) {
			now = grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if now != told {
			told = now
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		if h.protocol.Ending() {
			return status.Error(codes.Unavailable, "the server is shutting down")
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-end:
			return status.Error(codes.Unavailable, "a health stream without a token or certificate has a time limit; watch again")
		case <-changed:
		}
	}
}

// latest returns the health and a channel that is closed when it changes. One goroutine
// polls for all watchers.
func (h *grpcHealth) latest() (grpc_health_v1.HealthCheckResponse_ServingStatus, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.changed == nil {
		h.mu.status, h.mu.changed = h.status(), make(chan struct{})
		h.protocol.Go(h.poll)
	}
	return h.mu.status, h.mu.changed
}

// poll detects changes until the daemon is closed.
func (h *grpcHealth) poll() {
	ticker := time.NewTicker(grpcHealthInterval)
	defer ticker.Stop()
	for ending := false; ; {
		select {
		case <-h.protocol.Alive().Done():
			return
		case <-ticker.C:
		}
		now, ends := h.status(), h.protocol.Ending()
		h.mu.Lock()
		if now != h.mu.status || ends != ending {
			h.mu.status, ending = now, ends
			close(h.mu.changed)
			h.mu.changed = make(chan struct{})
		}
		h.mu.Unlock()
	}
}

func (h *grpcHealth) known(request *grpc_health_v1.HealthCheckRequest) bool {
	name := request.GetService()
	return name == "" || name == docservicegrpc.Documents_ServiceDesc.ServiceName
}

func (h *grpcHealth) status() grpc_health_v1.HealthCheckResponse_ServingStatus {
	if h.protocol.Ready() && !h.protocol.Boxcar().Stats().Draining {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}
