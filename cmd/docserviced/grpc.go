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
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
)

// Limits of the gRPC listener. Its bytes are in the budget of messages: see grpc_bytes.go.
const (
	grpcMaxConns         = 1 << 10 // one more is closed, or takes the place of one without proof
	grpcMaxStreams       = 1 << 7  // calls at once on a connection
	grpcRequestBytes     = 4 << 20
	grpcHeaderBytes      = 16 << 10
	grpcHandshakeTimeout = 5 * time.Second
	grpcIdleTimeout      = 5 * time.Minute
	grpcMinPing          = 10 * time.Second // more often, and the client is cut off
	// grpcHealthInterval is how late a watcher of the health may hear of a change.
	grpcHealthInterval = 200 * time.Millisecond
	// So many streams watch the health at once, at 16 KiB each. Where proof is asked for,
	// those of clients without it are counted apart, and end after some time.
	grpcMaxWatches      = 1 << 10
	grpcUnprovedWatches = 1 << 6
	grpcUnprovedWatch   = 10 * time.Minute
)

func addGRPCFlags(command *cobra.Command, o *daemonOptions) {
	command.Flags().StringVar(&o.grpc, "grpc", "", "address to serve gRPC on, for clients in other languages; empty: none")
}

// newGRPCServer makes the listener for clients that speak gRPC and not Boxcar: the
// documents, health and reflection. Slots and what follows from them are not
// there: who has several servers needs a balancer.
func newGRPCServer(d *daemon, handler boxcarrpc.Handler) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.StatsHandler(&grpcCounter{listener: d.grpcListener}),
		grpc.ChainUnaryInterceptor(d.containPanic, d.admitCall), // the outermost first
		grpc.ChainStreamInterceptor(d.admitStream),
		grpc.MaxRecvMsgSize(grpcRequestBytes),
		grpc.MaxConcurrentStreams(grpcMaxStreams),
		grpc.MaxHeaderListSize(grpcHeaderBytes),
		grpc.ConnectionTimeout(grpcHandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: grpcIdleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcMinPing, PermitWithoutStream: true}),
	}, d.keeper.grpcOptions()...)...)
	docservicepb.RegisterDocumentsServer(server, docservice.Documents(handler))
	grpc_health_v1.RegisterHealthServer(server, &grpcHealth{daemon: d})
	reflection.Register(server)
	return server
}

// serveGRPC serves until the server is stopped.
func (d *daemon) serveGRPC() {
	if err := d.grpc.Serve(d.grpcListener); err != nil {
		d.note(err, grpc.ErrServerStopped)
	}
}

// shutdownGRPC finishes the calls under way, for as long as ctx allows.
func (d *daemon) shutdownGRPC(ctx context.Context) error {
	stop := context.AfterFunc(ctx, d.grpc.Stop)
	d.grpc.GracefulStop()
	if !stop() {
		return ctx.Err()
	}
	return nil
}

// containPanic answers for a handler that has panicked, as the other listeners do.
func (d *daemon) containPanic(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if v := recover(); v != nil {
			d.env.Log.Error("handler panicked", "method", info.FullMethod, "panic", v, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the handler panicked")
		}
	}()
	return handler(ctx, request)
}

func (d *daemon) admitCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	leave, err := d.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	conn := connOf(ctx)
	if conn == nil {
		return handler(ctx, request)
	}
	ctx, room := conn.account.NewReservation(ctx)
	defer room.Release()
	answer, err := handler(ctx, request)
	if message, ok := answer.(proto.Message); ok && err == nil {
		if n := proto.Size(message); n > grpcLargeAnswer {
			conn.queue(n)
		}
	}
	return answer, err
}

func (d *daemon) admitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	leave, err := d.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	return handler(service, stream)
}

// admitWatch takes in a stream of health, within a limit of those that are open.
func admitWatch(open *atomic.Int64, limit int64, who string) (leave func(), err error) {
	if open.Add(1) > limit {
		open.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "the health is watched by %d %s", limit, who)
	}
	return func() { open.Add(-1) }, nil
}

// proved reports whether the peer of a call has proved who it is, or need not.
func (d *daemon) proved(ctx context.Context) bool {
	c := connOf(ctx)
	if c == nil || !d.grpcListener.proof {
		return true
	}
	d.grpcListener.mu.Lock()
	defer d.grpcListener.mu.Unlock()
	return c.proved
}

// admit takes in a call of a client that may make it, within the limits that it
// shares with the Boxcar listener, or says why not. Every client may ask for the health; the
// streams of those without proof are few.
func (d *daemon) admit(ctx context.Context, method string) (leave func(), err error) {
	client, err := d.keeper.identify(ctx)
	conn := connOf(ctx)
	proved := err == nil && client.Identity != ""
	if proved && conn != nil {
		conn.prove(client)
	}
	if strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/") {
		if method != grpc_health_v1.Health_Watch_FullMethodName {
			return func() {}, nil
		}
		if d.grpcListener.proof && !proved {
			return admitWatch(&d.unprovedWatches, grpcUnprovedWatches, "clients without a token or a certificate; show one, or call Check")
		}
		return admitWatch(&d.watches, grpcMaxWatches, "clients; call Check")
	}
	if err != nil {
		return nil, err
	}
	if leave, err = d.boxcar.Admit(client); err != nil {
		var refused *boxcarrpc.Error
		if errors.As(err, &refused) {
			err = status.Error(codes.Code(refused.Code), refused.Message)
		}
	}
	return leave, err
}

// grpcHealth tells in gRPC's terms what /readyz tells, and that the server is being
// drained: of the server as a whole, "", and of the documents' service.
type grpcHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	daemon *daemon

	mu struct {
		sync.Mutex
		status  grpc_health_v1.HealthCheckResponse_ServingStatus
		changed chan struct{} // nil: nobody has watched
	}
}

func (h *grpcHealth) Check(_ context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.known(request) {
		return nil, status.Errorf(codes.NotFound, "no service %s", request.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.status()}, nil
}

// Watch tells the health now and whenever it has changed, until the daemon ends.
func (h *grpcHealth) Watch(request *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	var end <-chan time.Time
	if !h.daemon.proved(stream.Context()) {
		timer := time.NewTimer(grpcUnprovedWatch)
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
			return status.Error(codes.Unavailable, "the watch of a client without a token or a certificate has a time limit; watch again")
		case <-changed:
		}
	}
}

// latest returns the health and what is closed when it has changed. One goroutine looks for
// all watchers.
func (h *grpcHealth) latest() (grpc_health_v1.HealthCheckResponse_ServingStatus, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.changed == nil {
		h.mu.status, h.mu.changed = h.status(), make(chan struct{})
		h.daemon.serving.Go(h.look)
	}
	return h.mu.status, h.mu.changed
}

// look notices changes until the daemon is closed.
func (h *grpcHealth) look() {
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
	return name == "" || name == docservicepb.Documents_ServiceDesc.ServiceName
}

func (h *grpcHealth) status() grpc_health_v1.HealthCheckResponse_ServingStatus {
	if h.daemon.ready() && !h.daemon.boxcar.Stats().Draining {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// ready is what /readyz tells, without the reasons.
func (d *daemon) ready() bool {
	return !d.ending.Load() && !slices.ContainsFunc(d.collections(), func(c *docservice.Collection) bool { return !c.Ready() })
}
