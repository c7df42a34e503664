package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/spin"
	"docstore/boxcarrpc/internal/wire"
)

// A transport is a connection of a pool. Callers write to it and read from it in turns: see
// internal/conn and read_turn.go.
//
// Lock order: see members.
type transport struct {
	members *members
	peer    *poolPeer
	conn    net.Conn
	out     conn.Outbox
	turn    readTurn
	hello   wire.Hello // of the server
	server  *Peer

	outstanding atomic.Int32  // outstanding answers, including ends of streams, excluding PONGs
	streamSends atomic.Uint64 // frames sent on streams, which are not answered

	// Guarded by members.mu.
	leased    int   // lanes that are leased or have sent a LEASE
	streams   int   // streams that are open or not yet ended by the server
	streamed  int64 // when the last stream was opened
	liveness  core.Liveness
	idleSince int64 // when the last lane was released; meaningless while there are lanes
	leaving   bool  // gets no more lanes and closes with its last one
	draining  bool  // the server grants no slots until it sends UNDRAIN
	lost      bool
	leasing   bool // a LEASE is outstanding
	suspect   bool // it is silent

	mu struct {
		spin.Mutex
		lanes   []*clientLane
		streams streamTable
		times   core.Times // response times
		err     error
	}
}

// dial connects to a server and exchanges HELLOs.
func (m *members) dial(ctx context.Context, peer *poolPeer) (*transport, error) {
	ctx, cancel := context.WithTimeout(ctx, m.options.DialTimeout)
	defer cancel()
	nc, err := m.options.Dialer(ctx, peer.address)
	if err != nil {
		return nil, err
	}
	conn.Tune(nc)
	// The handshakes end with the context, whatever the server does.
	stop := context.AfterFunc(ctx, func() { conn.Close(nc) })
	t, err := m.greet(ctx, peer, nc)
	if !stop() && !errors.Is(err, ErrNotBoxcar) {
		err = fmt.Errorf("server accepted the connection but did not answer within %v: %w", m.options.DialTimeout, ctx.Err())
	}
	if err != nil {
		conn.Close(nc)
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return t, nil
}

func (m *members) greet(ctx context.Context, peer *poolPeer, nc net.Conn) (*transport, error) {
	nc, token, err := m.options.secure(ctx, nc, peer.address)
	if err != nil {
		return nil, err
	}
	t := &transport{members: m, peer: peer, conn: nc}
	t.turn.init(nc)
	t.out.Init(nc, conn.NoAccount{}, 0, t.fail)
	return t, t.handshake(token)
}

func (t *transport) handshake(token string) error {
	_, err := t.conn.Write(wire.AppendHello(nil, wire.Hello{
		Version:       wire.Version,
		OldestVersion: wire.OldestVersion,
		MaxResponse:   MaxResponseBytes,
		Name:          t.members.options.Name,
		Token:         token,
		Zone:          t.members.options.Zone,
	}))
	if err != nil {
		return err
	}
	f, err := firstFrame(&t.turn.in)
	if err != nil {
		return err
	}
	if f.Type == wire.TypeGoAway {
		reason, err := f.Reason()
		return errors.Join(err, fmt.Errorf("server refused the connection: %s", reason))
	}
	if f.Type != wire.TypeHello {
		return protocolError("%v before HELLO", f.Type)
	}
	if t.hello, err = f.Hello(); err != nil {
		return err
	}
	t.server = newPeer(t.conn, t.hello)
	t.server.index = t.peer.index
	return commonVersion(t.hello)
}

// maxLanes returns the number of lanes that both sides allow.
func (t *transport) maxLanes() int {
	return min(t.members.options.LanesPerConn, int(t.hello.MaxLanes))
}

func (t *transport) frame(f wire.Frame) error {
	switch f.Type {
	case wire.TypeResponse:
		return t.takeResponse(f)
	case wire.TypeData:
		return t.takeData(f)
	case wire.TypeGrant, wire.TypeDeny:
		return t.takeAnswer(f)
	case wire.TypePing:
		token, err := f.Ping()
		// A server that sends PINGs and does not read gets no more PONGs.
		if err == nil && t.out.Below(conn.MaxReadBuffer) {
			t.out.Append(wire.AppendPing(nil, wire.TypePong, token))
			t.out.FlushSoon()
		}
		return err
	case wire.TypePong:
		t.members.takePong(t)
		t.shrink()
		return nil
	case wire.TypeGoAway, wire.TypeDrain, wire.TypeUndrain:
		reason, err := f.Reason()
		if err == nil {
			t.members.takeNotice(t, f.Type, reason)
		}
		return err
	}
	return t.streamFrame(f)
}

// shrink frees the buffers of a busy time if no answer is outstanding. The caller has the
// read turn.
func (t *transport) shrink() {
	if t.outstanding.Load() == 0 {
		t.turn.in.Shrink()
		t.out.Shrink()
	}
}

// fail closes the transport. Its slots leave the ladder before any caller is notified, so
// that no retry uses it. Only the first cause is kept.
func (t *transport) fail(cause error) {
	t.mu.Lock()
	if t.mu.err != nil {
		t.mu.Unlock()
		return
	}
	t.mu.err = cause
	t.mu.Unlock()
	conn.Close(t.conn)
	t.out.Close()
	close(t.turn.ended)
	t.members.removeTransport(t, cause)
	t.failStreams(cause)

	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lane := range t.mu.lanes {
		if lane.state == clientWaiting {
			lane.failure = cause
			lane.events <- ended
		}
	}
}
