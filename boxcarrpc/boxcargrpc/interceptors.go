package boxcargrpc

import (
	"context"

	"google.golang.org/grpc"
)

// chainUnary combines interceptors into one. It returns nil for none.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	first, rest := all[0], chainUnary(all[1:])
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return first(ctx, request, info, func(ctx context.Context, request any) (any, error) {
			return rest(ctx, request, info, handler)
		})
	}
}

// chainStream combines interceptors into one. It returns nil for none.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	first, rest := all[0], chainStream(all[1:])
	return func(implementation any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return first(implementation, stream, info, func(implementation any, stream grpc.ServerStream) error {
			return rest(implementation, stream, info, handler)
		})
	}
}
