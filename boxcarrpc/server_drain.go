package boxcarrpc

import (
	"context"
	"time"

	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// How long a connection without work waits for its client to close it when the
// server stops.
const drainGrace = time.Second

// Drain has the clients go elsewhere, while the server goes on: it gives out no
// more slots and tells every client, also those that connect later. They give
// back their slots as they become idle and keep a connection, on which they hear
// of Undrain. Requests in flight finish; what crosses the word on its way is
// refused as not processed, so that it is sent elsewhere. Drain does not wait: the
// server is drained when ServerStats has no Slots and nothing InFlight. It is
// idempotent. See also Shutdown, which drains a server in order to end it.
func (s *Server) Drain() { s.setDraining(true) }

// Undrain takes Drain back: clients come again within half a second, each at a
// random moment. It does nothing once Shutdown was called.
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
	for _, c := range conns { // not under the lock: a connection takes it under its own
		c.setDraining(draining)
	}
	s.options.Logger.Info("draining", "on", draining)
}

// Shutdown drains the server in order to end it: it stops to accept connections,
// tells every client that it is going away, answers new requests as not
// processed, so that they are sent elsewhere, lets those in flight finish, and
// returns when all connections are closed. If ctx ends first it returns its error
// and leaves the rest to Close.
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

// connsLocked lists the connections.
func (s *Server) connsLocked() []*serverConn {
	conns := make([]*serverConn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	return conns
}

// state is what a new connection tells its client.
func (s *Server) state() (draining, stopping bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.draining, s.mu.stopping
}

// greet opens the connection's outbox: its HELLO has been sent. What changes the
// server's state from here on is told to the connection.
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

// setDraining tells the client that the server is being drained, or no longer.
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
		c.out.Reason(wire.TypeDrain, refusalTable[refusedDraining].message)
	default:
		c.out.Reason(wire.TypeUndrain, "")
	}
	c.mu.draining = draining
	c.out.FlushSoon()
}

// stop tells the client that the server is going away. One that has not said
// HELLO has a last moment to do so, and hears it then.
func (c *serverConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.open {
		_ = c.conn.SetReadDeadline(time.Now().Add(drainGrace)) // fails on a closed connection only
		return
	}
	c.stopLocked(refusedStopping)
}

func (c *serverConn) stopLocked(why refusal) {
	if c.mu.stopping {
		return
	}
	c.mu.draining, c.mu.stopping, c.mu.stopped = true, true, why
	c.out.Reason(wire.TypeGoAway, refusalTable[why].message)
	c.out.FlushSoon()
	c.expectCloseLocked()
}

// admitLocked takes a request or a stream in, or says why not.
func (c *serverConn) admitLocked() refusal {
	switch {
	case c.mu.stopping:
		return c.mu.stopped
	case c.mu.draining:
		return refusedDraining
	}
	return c.server.admission.enter(c.turn.clock, c.client)
}

// expectCloseLocked gives a connection without work a last moment for its client to
// close it, if the server stops, and tells the reader, which may be waiting.
func (c *serverConn) expectCloseLocked() {
	if c.mu.stopping && c.mu.running == 0 && c.mu.drainBy.IsZero() {
		c.mu.drainBy = time.Now().Add(drainGrace)
		_ = c.conn.SetReadDeadline(c.mu.drainBy) // fails on a closed connection only
	}
}
