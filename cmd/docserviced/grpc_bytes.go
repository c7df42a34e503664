package main

import (
	"context"

	"google.golang.org/grpc/stats"

	"docstore/cmd/internal/bounded"
)

// grpcCounter counts the calls of a gRPC listener.
type grpcCounter struct{ listener *bounded.Listener }

// A grpcCall is a call; its events are sequential.
type grpcCall struct {
	conn      *bounded.Conn
	receiving bool // its request
}

type grpcCallKey struct{}

func (g *grpcCounter) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if c := g.listener.Find(info.RemoteAddr); c != nil {
		return bounded.WithConn(ctx, c)
	}
	return ctx
}

func (g *grpcCounter) HandleConn(context.Context, stats.ConnStats) {}

func (g *grpcCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, grpcCallKey{}, &grpcCall{conn: bounded.ConnOf(ctx)})
}

func (g *grpcCounter) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, _ := ctx.Value(grpcCallKey{}).(*grpcCall)
	if call == nil || call.conn == nil {
		return
	}
	switch event.(type) {
	case *stats.Begin:
		call.conn.BeginCall()
		call.receiving = true
	case *stats.InPayload, *stats.End:
		if call.receiving {
			call.conn.EndRequest()
			call.receiving = false
		}
	}
}
