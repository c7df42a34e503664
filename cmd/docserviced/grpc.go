package main

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
)

// Limits of the gRPC door. Unlike at the Boxcar door, requests that are being received
// have no budget together: that would have to be within grpc-go.
const (
	grpcMaxConns         = 1 << 10 // one more waits
	grpcMaxStreams       = 1 << 7  // calls at once on a connection
	grpcRequestBytes     = 4 << 20
	grpcHeaderBytes      = 16 << 10
	grpcHandshakeTimeout = 5 * time.Second
	grpcIdleTimeout      = 5 * time.Minute
	grpcMinPing          = 10 * time.Second // more often, and the client is cut off
	// grpcHealthInterval is how late a watcher of the health may hear of a change.
	grpcHealthInterval = 200 * time.Millisecond
)

func addGRPCFlags(command *cobra.Command, o *daemonOptions) {
	command.Flags().StringVar(&o.grpc, "grpc", "", "address to serve gRPC on, for clients in other languages; empty: none")
}

// newGRPCServer makes the door for clients that speak gRPC and not Boxcar: the
// documents, health and reflection. Slots and what follows from them are not
// there: who has several servers needs a balancer.
func newGRPCServer(d *daemon, handler boxcarrpc.Handler) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
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
	if err := d.grpc.Serve(netutil.LimitListener(d.grpcDoor, grpcMaxConns)); err != nil {
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

// containPanic answers for a handler that has panicked, as the other doors do.
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
	return handler(ctx, request)
}

func (d *daemon) admitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	leave, err := d.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	return handler(service, stream)
}

// admit takes in a call of a client that may make it, within the limits that it
// shares with the Boxcar door, or says why not. Everybody may always ask how the
// server is.
func (d *daemon) admit(ctx context.Context, method string) (leave func(), err error) {
	if strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/") {
		return func() {}, nil
	}
	client, err := d.keeper.identify(ctx)
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
}

func (h *grpcHealth) Check(_ context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.known(request) {
		return nil, status.Errorf(codes.NotFound, "no service %s", request.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.status()}, nil
}

// Watch tells the health now and whenever it has changed, until the daemon ends.
func (h *grpcHealth) Watch(request *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ticker := time.NewTicker(grpcHealthInterval)
	defer ticker.Stop()
	for told := grpc_health_v1.HealthCheckResponse_UNKNOWN; ; {
		now := grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
		if h.known(request) {
			now = h.status()
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
		case <-ticker.C:
		}
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
