package boxcarrpc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Methods that every server has, beside its handler's, for tools. Whoever may
// call the server may call them.
const (
	// MethodBoard answers with the server's [Board], in JSON. It can also be asked
	// by way of a stream, which takes no slot.
	MethodBoard = "/boxcar.v1.Server/Board"
	// MethodEcho answers with the request, for probes and for measuring.
	MethodEcho = "/boxcar.v1.Server/Echo"
)

// maxBoardSlots bounds the slots that a Board lists: about 1.5 MB of JSON, for whoever may
// connect may ask for it.
const maxBoardSlots = 8 << 10

// boardSlotBytes is about what a slot takes in a Board in JSON.
const boardSlotBytes = 200

// A Board is the slots of a server at one moment. Connections are looked at one
// after another, while the server goes on.
type Board struct {
	Name       string      `json:"name"`
	LowestFree int         `json:"lowest_free"`
	Draining   bool        `json:"draining"`
	InFlight   int         `json:"in_flight"` // requests being received or in a handler, and streams
	Streams    int         `json:"streams"`
	Slots      []BoardSlot `json:"slots"` // given out, by number
	More       int         `json:"more"`  // that are not listed: there are too many
}

// A BoardSlot is a slot that is given out.
type BoardSlot struct {
	Number   int           `json:"slot"`
	Client   string        `json:"client"`             // what the client calls itself
	Identity string        `json:"identity,omitempty"` // who it has proved to be
	Address  string        `json:"address"`            // of the client
	Age      time.Duration `json:"age_ns"`
	Requests uint64        `json:"requests"` // since the slot was leased
	Errors   uint64        `json:"errors"`   // of these, answered with an error
	Busy     bool          `json:"busy"`
}

// withTools is the handler of a server: h and the methods for tools.
func (s *Server) withTools(h Handler) Handler {
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		switch method {
		case MethodBoard:
			board, err := s.marshalBoard(ctx)
			return append(dst, board...), err
		case MethodEcho:
			return append(dst, request...), nil
		}
		return h(ctx, method, request, dst)
	}
}

// marshalBoard returns the board in JSON.
func (s *Server) marshalBoard(ctx context.Context) ([]byte, error) {
	slots := min(s.Stats().Slots, maxBoardSlots)
	if err := Reserve(ctx, slots*boardSlotBytes); err != nil {
		return nil, err
	}
	s.boards.Lock()
	defer s.boards.Unlock()
	return json.Marshal(s.Board())
}

// load is how many requests the server has. A stream may rest for long, and tells
// nothing.
func (s *Server) load() uint32 {
	return uint32(max(s.admission.inFlight.Load()-s.counts.streams.Load(), 0))
}

// Board lists the slots that the server has given out.
func (s *Server) Board() Board {
	stats := s.Stats()
	b := Board{Name: s.options.Name, LowestFree: stats.LowestFree, Draining: stats.Draining, InFlight: stats.InFlight, Streams: stats.Streams}
	s.mu.Lock()
	conns := s.connsLocked()
	s.mu.Unlock()
	now := time.Now()
	for _, c := range conns { // not under the lock: a connection takes it under its own
		b.Slots = c.appendSlots(b.Slots, now)
	}
	slices.SortFunc(b.Slots, func(x, y BoardSlot) int { return cmp.Compare(x.Number, y.Number) })
	if n := len(b.Slots); n > maxBoardSlots {
		b.Slots, b.More = b.Slots[:maxBoardSlots], n-maxBoardSlots
	}
	return b
}

func (c *serverConn) appendSlots(dst []BoardSlot, now time.Time) []BoardSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lane := range c.mu.lanes {
		if lane != nil {
			dst = append(dst, BoardSlot{
				Number: int(lane.slot), Client: c.peer.Name, Identity: c.peer.Identity, Address: c.peer.Address.String(),
				Age: now.Sub(lane.leased), Requests: lane.requests, Errors: lane.errors, Busy: lane.state != laneIdle,
			})
		}
	}
	return dst
}

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
