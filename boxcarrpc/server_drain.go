package boxcarrpc

import (
	"context"
	"time"

	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// The time that an idle connection of a stopping server waits for its client to close it.
const drainGrace = time.Second

// Drain makes the clients use other servers while the server keeps running: it grants no
// more slots and informs every client, including those that connect later. Clients release
// their slots as they become idle and keep one connection, on which they learn of Undrain.
// Requests in flight finish; requests that cross the notice are refused as not processed
// and retried elsewhere. Drain does not wait: the server is drained when ServerStats has no
// Slots and nothing InFlight. It is idempotent. Shutdown drains a server in order to stop
// it.
func (s *Server) Drain() { s.setDraining(true) }

// Undrain undoes Drain: clients return within half a second, each at a random time. It does
// nothing after Shutdown.
func (s *Server) Undrain() { s.setDraining(false) }

func (s *Server) setDraining(draining bool) {
	if !s.usable() {
		return
	}
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.mu.Lock()
	if s.mu.stopping || s.mu.closed || s.mu.draining == draining {
		s.mu.Unlock()
		return
	}
	s.mu.draining = draining
	conns := s.connsLocked()
	s.mu.Unlock()
	for _, c := range conns { // without s.mu: a connection locks it under its own mutex
		c.setDraining(draining)
	}
	s.options.Logger.Info("draining", "on", draining)
}

// Shutdown stops the server gracefully. It closes the listeners, tells every client that it
// is going away, refuses new requests as not processed so that they are retried elsewhere,
// waits for those in flight and returns when all connections are closed. If ctx ends first
// it returns the error of ctx; call Close then.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.usable() {
		return nil
	}
	s.stop()
	select {
	case <-s.mu.empty:
		return s.Close()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) stop() {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.mu.Lock()
	if s.mu.stopping || s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.draining, s.mu.stopping = true, true
	for l := range s.mu.listeners {
		conn.Close(l)
	}
	conns := s.connsLocked()
	if len(conns) == 0 {
		s.closeEmptyLocked()
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.stop()
	}
}

// connsLocked returns the connections.
func (s *Server) connsLocked() []*serverConn {
	conns := make([]*serverConn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	return conns
}

// state is sent to the client of a new connection.
func (s *Server) state() (draining, stopping bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.draining, s.mu.stopping
}

// greet marks the connection as open, since its HELLO has been sent. From here on it is
// informed of changes of the server's state.
func (c *serverConn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.open = true
	draining, stopping := c.server.state()
	switch {
	case stopping:
		c.stopLocked(refusedStopping)
	case draining:
		c.setDrainingLocked(true)
	}
}

// setDraining tells the client that the server is draining, or no longer.
func (c *serverConn) setDraining(draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.open {
		c.setDrainingLocked(draining)
	}
}

func (c *serverConn) setDrainingLocked(draining bool) {
	switch {
	case c.mu.draining == draining:
		return
	case draining:
		c.out.Append(wire.AppendReason(nil, wire.TypeDrain, refusalTable[refusedDraining].message))
	default:
		c.out.Append(wire.AppendReason(nil, wire.TypeUndrain, ""))
	}
	c.mu.draining = draining
	c.out.FlushSoon()
}

// stop tells the client that the server is going away. A client that has not sent HELLO
// gets drainGrace to do so.
func (c *serverConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.open {
		_ = c.conn.SetReadDeadline(time.Now().Add(drainGrace)) // only fails if the connection is closed
		return
	}
	c.stopLocked(refusedStopping)
}

func (c *serverConn) stopLocked(why refusal) {
	if c.mu.stopping {
		return
	}
	c.mu.draining, c.mu.stopping, c.mu.stopped = true, true, why
	c.out.Append(wire.AppendReason(nil, wire.TypeGoAway, refusalTable[why].message))
	c.out.FlushSoon()
	c.expectCloseLocked()
}

// admitLocked admits a request or a stream, or returns the reason for refusing it.
func (c *serverConn) admitLocked(batch bool) refusal {
	switch {
	case c.mu.stopping:
		return c.mu.stopped
	case c.mu.draining:
		return refusedDraining
	}
	return refusal(c.server.gate.Enter(c.turn.clock, c.client, batch))
}

// expectCloseLocked gives the client of an idle connection drainGrace to close it, if the
// server stops, and wakes the reader.
func (c *serverConn) expectCloseLocked() {
	if c.mu.stopping && c.mu.running == 0 && c.mu.drainBy.IsZero() {
		c.mu.drainBy = time.Now().Add(drainGrace)
		_ = c.conn.SetReadDeadline(c.mu.drainBy) // fails on a closed connection only
	}
}
