package grpcserver

import (
	"context"
	"crypto/tls"
	"errors"
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
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/credentials"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/server"
	"docstore/docservice/server/internal/bounded"
)

// Limits of the gRPC listener. Its bytes count against the budget of messages: see package
// bounded.
const (
	maxConns         = 1 << 10 // one more is closed, or replaces one of a client that has not authenticated
	maxStreams       = 1 << 7  // concurrent calls of a connection
	streamWorkers    = 1 << 6  // goroutines that are kept for calls: the stack of a new one is copied as it grows
	requestBytes     = 4 << 20
	headerBytes      = 16 << 10
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 5 * time.Minute
	minPing          = 10 * time.Second // a client that pings more often is disconnected
	// healthInterval is the maximum delay of a change for a watcher of the health.
	healthInterval = 200 * time.Millisecond
	// Limits of concurrent health streams, which take 16 KiB each. If credentials are
	// required, streams of clients without them are limited separately, in number and
	// duration. One client may have as many as connections, unauthenticated an eighth.
	maxWatches             = 1 << 10
	unauthenticatedWatches = 1 << 6
	unauthenticatedWatch   = 10 * time.Minute
)

// Options configure a Protocol.
type Options struct {
	// Address is HOST:PORT, or :PORT for all of this machine.
	Address string
	// Interceptor is called for each call after its credentials and limits have been checked,
	// for traces; nil: none.
	Interceptor grpc.UnaryServerInterceptor
}

// Protocol is the server.Protocol of gRPC: documents, health and reflection. It has no
// slots: clients need a load balancer to use several servers.
type Protocol struct {
	*server.Server // set by Open
	options        Options
	listener       *bounded.Listener
	server         *grpc.Server // nil: not started
	// Open health streams of authenticated and of unauthenticated clients. If no
	// credentials are required, all count as authenticated.
	watches, unauthenticatedWatches atomic.Int64
}

// New returns a protocol for Options.Protocol of a server.
func New(o Options) *Protocol { return &Protocol{options: o} }

// Address returns the address of the listener.
func (g *Protocol) Address() string { return g.listener.Addr().String() }

// Name implements server.Protocol.
func (g *Protocol) Name() string { return "grpc" }

// Open implements server.Protocol.
func (g *Protocol) Open(d *server.Server) error {
	if err := d.Options().Check(g.options.Address); err != nil {
		return err
	}
	listener, err := d.Options().Host.Listen("--grpc", g.options.Address)
	if err != nil {
		return err
	}
	g.Server = d
	g.listener = bounded.New(listener, bounded.Options{
		Name: g.Name(), MaxConns: maxConns, ClientConns: d.ClientConns(maxConns), RequireCredentials: d.Authenticator().Required(), CountCalls: true, Budget: d.Messages(), Logger: d.Logger(),
	})
	return nil
}

// Start implements server.Protocol.
func (g *Protocol) Start(handler boxcarrpc.Handler) {
	options := []grpc.ServerOption{
		grpc.StatsHandler(&counter{listener: g.listener}),
		grpc.InTapHandle(g.tapCall),
		grpc.ChainUnaryInterceptor(g.interceptors()...),
		grpc.ChainStreamInterceptor(g.admitStream),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(requestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(headerBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTimeout, MaxConnectionAge: g.MaxConnAge(), MaxConnectionAgeGrace: ageGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
	if config := g.Authenticator().TLS("h2"); config != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(config)))
	}
	g.server = grpc.NewServer(options...)
	registerDocuments(g.server, handler)
	grpc_health_v1.RegisterHealthServer(g.server, &health{protocol: g, unauthenticatedWatch: unauthenticatedWatch})
	reflection.Register(g.server)
	g.Go(func() {
		if err := g.server.Serve(g.listener); err != nil {
			g.Note(err, grpc.ErrServerStopped)
		}
	})
}

// Shutdown implements server.Protocol.
func (g *Protocol) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, g.server.Stop)
	g.server.GracefulStop()
	if !stop() {
		return ctx.Err()
	}
	return nil
}

// Close implements server.Protocol.
func (g *Protocol) Close() error {
	if g.server == nil {
		return g.listener.Close()
	}
	g.server.Stop()
	return nil
}

// interceptors returns the interceptors of calls, outermost first.
func (g *Protocol) interceptors() []grpc.UnaryServerInterceptor {
	list := []grpc.UnaryServerInterceptor{g.containPanic, g.admitCall}
	if g.options.Interceptor != nil {
		list = append(list, g.options.Interceptor)
	}
	return list
}

// identify returns the client of a call, by "authorization: Bearer TOKEN" or by its
// certificate, or an error if it is not allowed.
func (g *Protocol) identify(ctx context.Context) (boxcarrpc.Identity, error) {
	var state *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(grpccredentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			state = &info.State
			if err := g.Authenticator().VerifyConn(ctx, state); err != nil {
				return boxcarrpc.Identity{}, status.Error(codes.Unauthenticated, err.Error())
			}
		}
	}
	token := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		token = credentials.BearerToken(values[0])
	}
	identity, err := g.Authenticator().Identify(state, token)
	if err != nil {
		return boxcarrpc.Identity{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return identity, nil
}

// containPanic turns a panic of a handler into an error, as the other listeners do.
func (g *Protocol) containPanic(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if v := recover(); v != nil {
			g.Logger().Error("handler panicked", "method", info.FullMethod, "panic", v, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the handler panicked; see the server's log")
		}
	}()
	return handler(ctx, request)
}

func (g *Protocol) admitCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	batch := isBatch(ctx)
	identity, leave, err := g.admit(ctx, info.FullMethod, batch)
	if err != nil {
		return nil, err
	}
	defer leave()
	call, _ := ctx.Value(rpcKey{}).(*rpc)
	if batch {
		ctx = boxcarrpc.WithBatch(ctx)
	}
	of := &server.RequestContext{Context: ctx, Identity: identity}
	if call == nil || call.conn == nil {
		return handler(of, request)
	}
	call.response = call.conn.NewResponse(&of.Reservation)
	answer, err := handler(of, request)
	if err != nil {
		return nil, err
	}
	switch message := answer.(type) {
	case *pooled: // small
		call.response.Queue(len(message.message))
	case encoded:
		return call.queue(of, message)
	}
	return answer, nil
}

func (g *Protocol) admitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	identity, leave, err := g.admit(stream.Context(), info.FullMethod, isBatch(stream.Context()))
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
func (g *Protocol) watchLimits(ctx context.Context) []watchLimit {
	identity, err := g.identify(ctx)
	authenticated := err == nil && identity.Authenticated()
	all := watchLimit{&g.watches, maxWatches, "for all clients; call Check"}
	share := int64(g.ClientConns(maxWatches)) // one for each connection
	if g.Authenticator().Required() && !authenticated {
		share = unauthenticatedWatches / bounded.ClientShare
		all = watchLimit{&g.unauthenticatedWatches, unauthenticatedWatches, "for clients without a token or certificate; authenticate, or call Check"}
	}
	conn := bounded.ConnOf(ctx)
	if conn == nil {
		return []watchLimit{all}
	}
	return []watchLimit{all, {conn.Watches(), share, "for a client; call Check"}}
}

// admitWatch counts a health stream, and refuses it above a limit.
func (g *Protocol) admitWatch(ctx context.Context) (leave func(), err error) {
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
func (g *Protocol) tapCall(ctx context.Context, call *tap.Info) (context.Context, error) {
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
func (g *Protocol) admit(ctx context.Context, method string, batch bool) (identity boxcarrpc.Identity, leave func(), err error) {
	identity, err = g.identify(ctx)
	conn := bounded.ConnOf(ctx)
	authenticated := err == nil && identity.Authenticated()
	isHealth := strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
	if conn != nil && (authenticated || err == nil && !isHealth) {
		if full := conn.Authenticate(identity.Name); full != nil && !isHealth {
			return boxcarrpc.Identity{}, nil, status.Error(codes.ResourceExhausted, full.Error())
		}
	}
	if isHealth {
		if method != grpc_health_v1.Health_Watch_FullMethodName {
			return boxcarrpc.Identity{}, func() {}, nil
		}
		if !authenticated {
			identity = boxcarrpc.Identity{}
		}
		leave, err = g.admitWatch(ctx)
		return identity, leave, err
	}
	if err != nil {
		return boxcarrpc.Identity{}, nil, err
	}
	client := budget.ClientNamed(identity.Name) // without a connection
	if conn != nil {
		client = conn.Client(identity.Name)
	}
	if leave, err = g.Boxcar().Admit(client, batch); err != nil {
		var refused *boxcarrpc.Error
		if errors.As(err, &refused) {
			err = status.Error(codes.Code(refused.Code), refused.Message)
		}
	}
	return identity, leave, err
}

// isBatch reports whether the metadata of a call has the priority of batch.
func isBatch(ctx context.Context) bool {
	values := metadata.ValueFromIncomingContext(ctx, boxcarrpc.PriorityKey)
	return len(values) > 0 && boxcarrpc.IsBatchPriority(strings.Join(values, ","))
}

// health reports over gRPC what /readyz reports, and NOT_SERVING while the server is
// draining: for the server as a whole, "", and for the document service.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	protocol             *Protocol
	unauthenticatedWatch time.Duration

	mu struct {
		sync.Mutex
		status  grpc_health_v1.HealthCheckResponse_ServingStatus
		ending  bool
		changed chan struct{} // nil: no watcher yet
	}
}

func (h *health) Check(_ context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.known(request) {
		return nil, status.Errorf(codes.NotFound, "no service %s", request.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.status()}, nil
}

// Watch sends the health now and whenever it changes, until the server ends.
func (h *health) Watch(request *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	var end <-chan time.Time
	if conn := bounded.ConnOf(stream.Context()); conn != nil && !conn.Authenticated() {
		timer := time.NewTimer(h.unauthenticatedWatch)
		defer timer.Stop()
		end = timer.C
	}
	for told := grpc_health_v1.HealthCheckResponse_UNKNOWN; ; {
		now, ending, changed := h.latest()
		if !h.known(request) {
			now = grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if now != told {
			told = now
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		if ending {
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

// latest returns the health, whether the server is ending, and a channel that is closed
// when either changes. One goroutine polls for all watchers.
func (h *health) latest() (now grpc_health_v1.HealthCheckResponse_ServingStatus, ending bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.changed == nil {
		h.mu.status, h.mu.changed = h.status(), make(chan struct{})
		h.protocol.Go(h.poll)
	}
	return h.mu.status, h.mu.ending, h.mu.changed
}

// poll detects changes until the server is closed.
func (h *health) poll() {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		select {
		case <-h.protocol.Alive().Done():
			return
		case <-ticker.C:
		}
		ending := h.protocol.Ending() // before the status: a server that is ending is not ready
		now := h.status()
		h.mu.Lock()
		if now != h.mu.status || ending != h.mu.ending {
			h.mu.status, h.mu.ending = now, ending
			close(h.mu.changed)
			h.mu.changed = make(chan struct{})
		}
		h.mu.Unlock()
	}
}

func (h *health) known(request *grpc_health_v1.HealthCheckRequest) bool {
	name := request.GetService()
	return name == "" || name == docservicegrpc.Documents_ServiceDesc.ServiceName
}

func (h *health) status() grpc_health_v1.HealthCheckResponse_ServingStatus {
	if h.protocol.Ready() && !h.protocol.Boxcar().Stats().Draining {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}
