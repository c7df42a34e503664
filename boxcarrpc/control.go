package boxcarrpc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Methods by which a server is controlled. They are streams, because a server that
// is being drained gives out no slots: the client opens one, and receives the
// [Board] as it is then, in JSON. ServerOptions.Operators may use
// them, and, while the server identifies no clients, any client on its own host.
const (
	// MethodDrain has the server call Drain.
	MethodDrain = "/boxcar.v1.Server/Drain"
	// MethodUndrain has the server call Undrain.
	MethodUndrain = "/boxcar.v1.Server/Undrain"
)

// Tools are served beside the streams, so that a server with too much to do can still be
// looked at and drained, within bounds of their own: a board is long where there are
// many slots, and whoever may connect may ask for it.
const (
	maxTools = 16
	toolTime = 10 * time.Second
)

// admitTool takes a stream of a tool in, or says why not. What was taken in leaves.
func (s *Server) admitTool() refusal {
	if s.counts.tools.Add(1) > maxTools {
		s.counts.tools.Add(-1)
		return refusedStreams
	}
	return taken
}

// isTool reports whether every server has this stream, whatever it serves besides
// and whatever state it is in.
func isTool(method string) bool {
	return method == MethodDrain || method == MethodUndrain || method == MethodBoard
}

// withToolStreams is the handler of a server's streams: h and the tools.
func (s *Server) withToolStreams(h StreamHandler) StreamHandler {
	return func(ctx context.Context, method string, stream *ServerStream) error {
		if stream.tool {
			return s.serveTool(stream)
		}
		return h(ctx, method, stream)
	}
}

// serveTool serves a stream of a tool.
func (s *Server) serveTool(stream *ServerStream) error {
	if stream.method != MethodBoard {
		if err := s.mayOperate(stream.conn.peer); err != nil {
			return err
		}
		s.setDraining(stream.method == MethodDrain)
	}
	board, err := stream.conn.server.marshalBoard(stream.ctx)
	if err != nil {
		return err
	}
	return stream.Send(board)
}

// mayOperate reports an error if a client may not drain the server. The address alone
// says little: a proxy on the server's host forwards for other hosts.
func (s *Server) mayOperate(client *Peer) error {
	o := &s.options
	anonymous := client.Identity == "" && o.Authenticate == nil && len(o.Operators) == 0
	if anonymous && isLocal(client.Address) || client.Identity != "" && slices.Contains(o.Operators, client.Identity) {
		return nil
	}
	return &Error{
		Code: CodePermissionDenied,
		Message: fmt.Sprintf("%q at %v may not drain the server: it must be one of the operators, "+
			"or on the server's host where the server identifies no clients", client.Identity, client.Address),
		Processed: true,
	}
}

// isLocal reports whether an address is one of this host that no other reaches.
// What is not of TCP, as a Unix socket or a pipe, is.
func isLocal(address net.Addr) bool {
	if !strings.HasPrefix(address.Network(), "tcp") {
		return true
	}
	port, err := netip.ParseAddrPort(address.String())
	return err == nil && port.Addr().Unmap().IsLoopback()
}
