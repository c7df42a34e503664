package main

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
	"docstore/docservice/docservicegrpc"
)

// Limits of the gRPC listener. Its bytes count against the budget of messages: see
// grpc_bytes.go.
const (
	grpcMaxConns         = 1 << 10 // one more is closed, or replaces an unauthenticated one
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
	// duration. One unauthenticated client may have an eighth.
	grpcMaxWatches             = 1 << 10
	grpcUnauthenticatedWatches = 1 << 6
	grpcUnauthenticatedWatch   = 10 * time.Minute
)

func addGRPCFlags(command *cobra.Command, o *daemonOptions) {
	command.Flags().StringVar(&o.grpc, "grpc", "", "address to serve gRPC on, for clients without Boxcar; empty: none")
}

// newGRPCServer returns the gRPC server with documents, health and reflection. It has no
// slots: clients need a load balancer to use several servers.
func newGRPCServer(d *daemon, handler boxcarrpc.Handler) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.StatsHandler(&grpcCounter{listener: d.grpcListener}),
		grpc.InTapHandle(d.tapCall),
		grpc.ChainUnaryInterceptor(d.containPanic, d.admitCall, d.traceCall), // outermost first
		grpc.ChainStreamInterceptor(d.admitStream),
		grpc.ForceServerCodecV2(newGRPCCodec()),
		grpc.MaxRecvMsgSize(grpcRequestBytes),
		grpc.MaxConcurrentStreams(grpcMaxStreams),
		grpc.MaxHeaderListSize(grpcHeaderBytes),
		grpc.ConnectionTimeout(grpcHandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: grpcIdleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcMinPing, PermitWithoutStream: true}),
	}, d.auth.grpcOptions()...)...)
	registerDocuments(server, handler)
	grpc_health_v1.RegisterHealthServer(server, &grpcHealth{daemon: d, unauthenticatedWatch: grpcUnauthenticatedWatch})
	reflection.Register(server)
	return server
}

// serveGRPC serves until the server is stopped.
func (d *daemon) serveGRPC() {
	if err := d.grpc.Serve(d.grpcListener); err != nil {
		d.note(err, grpc.ErrServerStopped)
	}
}

// shutdownGRPC finishes the calls in flight until ctx ends.
func (d *daemon) shutdownGRPC(ctx context.Context) error {
	stop := context.AfterFunc(ctx, d.grpc.Stop)
	d.grpc.GracefulStop()
	if !stop() {
		return ctx.Err()
	}
	return nil
}

// containPanic turns a panic of a handler into an error, as the other listeners do.
func (d *daemon) containPanic(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if v := recover(); v != nil {
			d.env.Log.Error("handler panicked", "method", info.FullMethod, "panic", v, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the handler panicked; see the server's log")
		}
	}()
	return handler(ctx, request)
}

func (d *daemon) admitCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	client, leave, err := d.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx = withIdentity(ctx, client)
	conn := connOf(ctx)
	if conn == nil {
		return handler(ctx, request)
	}
	ctx, room := conn.account.NewReservation(ctx)
	defer room.Release()
	answer, err := handler(ctx, request)
	if message, ok := answer.(grpcBytes); ok && len(message) > grpcLargeAnswer {
		conn.queue(len(message))
	}
	return answer, err
}

func (d *daemon) admitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	_, leave, err := d.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	return handler(service, stream)
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
func (d *daemon) watchLimits(ctx context.Context) []watchLimit {
	client, err := d.auth.identify(ctx)
	if err == nil && client.Identity != "" {
		return []watchLimit{{&d.watches, grpcMaxWatches, "for all clients; call Check"}}
	}
	all := watchLimit{&d.watches, grpcMaxWatches, "for all clients; call Check"}
	if d.grpcListener.requireAuth {
		all = watchLimit{&d.unauthenticatedWatches, grpcUnauthenticatedWatches, "for clients without a token or certificate; authenticate, or call Check"}
	}
	conn := connOf(ctx)
	if conn == nil {
		return []watchLimit{all}
	}
	return []watchLimit{all, {&conn.ofClient.watches, all.most / clientShare, "for a client; call Check"}}
}

// admitWatch counts a health stream, and refuses it above a limit.
func (d *daemon) admitWatch(ctx context.Context) (leave func(), err error) {
	limits := d.watchLimits(ctx)
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
func (d *daemon) tapCall(ctx context.Context, call *tap.Info) (context.Context, error) {
	if call.FullMethodName == grpc_health_v1.Health_Watch_FullMethodName {
		for _, l := range d.watchLimits(ctx) {
			if l.open.Load() >= l.most {
				return nil, l.err()
			}
		}
	}
	return ctx, nil
}

// authenticated reports whether the peer of a call has presented credentials, or needs
// none.
func (d *daemon) authenticated(ctx context.Context) bool {
	c := connOf(ctx)
	if c == nil || !d.grpcListener.requireAuth {
		return true
	}
	d.grpcListener.mu.Lock()
	defer d.grpcListener.mu.Unlock()
	return c.authenticated
}

// admit checks the credentials of a call and the limits, which it shares with the Boxcar
// listener. Every client may call Check; streams of unauthenticated clients are limited.
// identity is that of the client, empty if it is unknown.
func (d *daemon) admit(ctx context.Context, method string) (identity string, leave func(), err error) {
	client, err := d.auth.identify(ctx)
	conn := connOf(ctx)
	authenticated := err == nil && client.Identity != ""
	if authenticated && conn != nil {
		conn.markAuthenticated(client)
	}
	if strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/") {
		if method != grpc_health_v1.Health_Watch_FullMethodName {
			return "", func() {}, nil
		}
		leave, err = d.admitWatch(ctx)
		return "", leave, err
	}
	if err != nil {
		return "", nil, err
	}
	if leave, err = d.boxcar.Admit(client); err != nil {
		var refused *boxcarrpc.Error
		if errors.As(err, &refused) {
			err = status.Error(codes.Code(refused.Code), refused.Message)
		}
	}
	return client.Identity, leave, err
}

// grpcHealth reports over gRPC what /readyz reports, and NOT_SERVING while the server is
// draining: for the server as a whole, "", and for the document service.
type grpcHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	daemon               *daemon
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
	if !h.daemon.authenticated(stream.Context()) {
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
		if h.daemon.ending.Load() {
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
		h.daemon.serving.Go(h.poll)
	}
	return h.mu.status, h.mu.changed
}

// poll detects changes until the daemon is closed.
func (h *grpcHealth) poll() {
	ticker := time.NewTicker(grpcHealthInterval)
	defer ticker.Stop()
	for ending := false; ; {
		select {
		case <-h.daemon.alive.Done():
			return
		case <-ticker.C:
		}
		now, ends := h.status(), h.daemon.ending.Load()
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
	if h.daemon.ready() && !h.daemon.boxcar.Stats().Draining {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// ready is the result of /readyz without the reasons.
func (d *daemon) ready() bool {
	return !d.ending.Load() &&
		!slices.ContainsFunc(d.collections(), func(c *collection.Collection) bool { return !isShard(c.Name()) && !c.Ready() }) &&
		!slices.ContainsFunc(d.columnList(), func(c *columnOf) bool { return c.Status().NotReady != "" })
}
