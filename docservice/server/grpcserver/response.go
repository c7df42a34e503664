package grpcserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"docstore/docservice/server/internal/bounded"
)

// counter counts the calls of a gRPC listener.
type counter struct{ listener *bounded.Listener }

// An rpc is a call; its events are sequential.
type rpc struct {
	conn      *bounded.Conn
	receiving bool // its request
	response  *bounded.Response
	sending   bool // grpc-go frees the response
}

// queue returns the message to send as the response of a call. A large one is charged until
// grpc-go has sent or dropped it.
func (c *rpc) queue(ctx context.Context, message encoded) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if !c.response.Queue(len(message)) {
		return message, nil
	}
	// The copy that grpc-go makes of a compressed response could not be counted.
	if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
		return nil, err
	}
	return &charged{message: message, response: c.response}, nil
}

type rpcKey struct{}

func (g *counter) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if c := g.listener.Find(info.RemoteAddr); c != nil {
		return bounded.WithConn(ctx, c)
	}
	return ctx
}

func (g *counter) HandleConn(context.Context, stats.ConnStats) {}

func (g *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, rpcKey{}, &rpc{conn: bounded.ConnOf(ctx)})
}

func (g *counter) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, _ := ctx.Value(rpcKey{}).(*rpc)
	if call == nil || call.conn == nil {
		return
	}
	switch event.(type) {
	case *stats.Begin:
		call.conn.BeginCall()
		call.receiving = true
	case *stats.InPayload:
		call.endRequest()
	case *stats.OutPayload:
		// grpc-go may drop the response to a cancelled call without freeing it.
		call.sending = ctx.Err() == nil
	case *stats.End:
		call.endRequest()
		if call.response != nil && !call.sending {
			call.response.Release()
		}
	}
}

func (c *rpc) endRequest() {
	if c.receiving {
		c.conn.EndRequest()
		c.receiving = false
	}
}
