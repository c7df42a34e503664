package boxcarrpc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/conn"
)

// Built-in methods of every server, for tools. Every client may call them.
const (
	// MethodBoard returns the server's [Board] in JSON. It is also available as a stream,
	// which takes no slot.
	MethodBoard = "/boxcar.v1.Server/Board"
	// MethodEcho returns the request, for probes and measurements.
	MethodEcho = "/boxcar.v1.Server/Echo"
)

// maxBoardSlots limits the slots in a Board to about 1.5 MB of JSON, since every client may
// ask for one.
const maxBoardSlots = 8 << 10

// boardSlotBytes is the approximate size of a slot in JSON.
const boardSlotBytes = 200

// A Board lists the granted slots of a server. The connections are read one after another,
// not at one instant.
type Board struct {
	Name       string      `json:"name"`
	Zone       string      `json:"zone,omitempty"`       // of the server
	Requests   uint64      `json:"requests"`             // that reached a handler
	OtherZone  uint64      `json:"other_zone,omitempty"` // of these, from clients of other zones
	LowestFree int         `json:"lowest_free"`
	Draining   bool        `json:"draining"`
	InFlight   int         `json:"in_flight"` // requests that are being received or handled, and streams
	Streams    int         `json:"streams"`
	Slots      []BoardSlot `json:"slots"` // granted slots, by number
	More       int         `json:"more"`  // number of slots that are not listed
}

// A BoardSlot is a granted slot.
type BoardSlot struct {
	Number   int           `json:"slot"`
	Client   string        `json:"client"`             // the name that the client gave itself
	Zone     string        `json:"zone,omitempty"`     // the zone that the client says it is in
	Identity string        `json:"identity,omitempty"` // the name of the authenticated identity
	Address  string        `json:"address"`
	Age      time.Duration `json:"age_ns"`
	Requests uint64        `json:"requests"` // since the slot was leased
	Errors   uint64        `json:"errors"`   // of these, answered with an error
	Busy     bool          `json:"busy"`
}

// withTools returns a handler that serves the built-in methods and passes others to h.
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
	size := min(s.Stats().Slots, maxBoardSlots) * boardSlotBytes
	if err := budget.Reserve(ctx, size); err != nil {
		return nil, err
	}
	var board []byte
	var err error
	if late := budget.Compute(ctx, size, func() { board, err = json.Marshal(s.Board()) }); late != nil {
		return nil, late
	}
	return board, err
}

// load returns the requests in flight. Streams do not count, since they may be idle for
// long.
func (s *Server) load() uint32 {
	return uint32(max(s.gate.InFlight()-s.counts.streams.Load(), 0))
}

// Board returns the granted slots of the server.
func (s *Server) Board() Board {
	stats := s.Stats()
	b := Board{Name: s.options.Name, Zone: s.options.Zone, Requests: stats.Requests, OtherZone: stats.OtherZone, LowestFree: stats.LowestFree, Draining: stats.Draining, InFlight: stats.InFlight, Streams: stats.Streams}
	s.mu.Lock()
	conns := s.connsLocked()
	s.mu.Unlock()
	now := time.Now()
	for _, c := range conns { // without s.mu: a connection locks it under its own mutex
		b.Slots = c.appendSlots(b.Slots, now)
	}
	slices.SortFunc(b.Slots, func(x, y BoardSlot) int { return cmp.Compare(x.Number, y.Number) })
	if n := len(b.Slots); n > maxBoardSlots {
		b.Slots, b.More = b.Slots[:maxBoardSlots], n-maxBoardSlots
	}
	return b
}

// Methods that drain a server. They are streams, because a draining server grants no slots:
// the client opens a stream and receives the resulting [Board] in JSON. They are allowed to
// ServerOptions.Operators and, while the server does not identify clients, to any client on
// its own host.
const (
	// MethodDrain calls Server.Drain.
	MethodDrain = "/boxcar.v1.Server/Drain"
	// MethodUndrain calls Server.Undrain.
	MethodUndrain = "/boxcar.v1.Server/Undrain"
)

// Built-in streams have separate limits, so that an overloaded server can be inspected and
// drained. They are limited because a board can be large and every client may ask for one.
const (
	maxTools       = 16
	maxClientTools = 4 // of one client, so that it cannot keep an operator from draining
	toolTime       = 10 * time.Second
	// maxToolRequestBytes limits the message of a client to one of ServerOptions.Tools.
	maxToolRequestBytes = 64 << 10
)

// isTool reports whether a stream is built in, and served in every state of the server.
func (s *Server) isTool(method string) bool {
	return method == MethodDrain || method == MethodUndrain || method == MethodBoard || s.options.Tools[method] != nil
}

// withToolStreams returns a handler that serves the built-in streams and passes others to
// h.
func (s *Server) withToolStreams(h StreamHandler) StreamHandler {
	return func(ctx context.Context, method string, stream *ServerStream) error {
		if stream.tool {
			return s.serveTool(stream)
		}
		return h(ctx, method, stream)
	}
}

// serveTool serves a built-in stream.
func (s *Server) serveTool(stream *ServerStream) error {
	if h := s.options.Tools[stream.method]; h != nil {
		request, err := stream.Receive(nil)
		if err != nil {
			return err
		}
		answer, err := h(stream.ctx, stream.method, request, nil)
		if err != nil {
			return err
		}
		return stream.Send(answer)
	}
	if stream.method != MethodBoard {
		err := s.mayOperate(stream.conn.peer)
		if err == nil {
			s.setDraining(stream.method == MethodDrain)
		}
		if s.options.Audit != nil {
			s.options.Audit(stream.conn.peer, stream.method, err)
		}
		if err != nil {
			return err
		}
	}
	board, err := stream.conn.server.marshalBoard(stream.ctx)
	if err != nil {
		return err
	}
	return stream.Send(board)
}

// mayOperate returns an error if a client may not drain the server. A local address alone
// is not sufficient: a proxy on the server's host may forward requests of other hosts.
func (s *Server) mayOperate(client *Peer) error {
	o := &s.options
	open := !client.Identity.Authenticated() && o.Authenticate == nil && len(o.Operators) == 0
	if open && conn.IsLocal(client.Address) || client.Identity.Authenticated() && slices.Contains(o.Operators, client.Identity.Name) {
		return nil
	}
	return &Error{
		Code: CodePermissionDenied,
		Message: fmt.Sprintf("client %v at %v may not drain the server: it must be one of the operators, "+
			"or local if the server identifies no clients", client.Identity, client.Address),
		Processed: true,
	}
}
