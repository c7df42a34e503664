package boxcarrpc

import "sync/atomic"

// A client may always have this much, whatever its share: a server with low limits is one
// with few clients.
const (
	leastSlots   = 1 << 10
	leastConns   = 1 << 7
	leastStreams = 1 << 7
)

// clientShares are what each client of a server has of its connections, slots and
// streams, and may have. It is guarded by the server's mutex.
type clientShares struct {
	conns, slots, streams int // of one client at most
	clients               map[clientKey]*clientShare
}

// A clientShare is what one client has.
type clientShare struct {
	key          clientKey
	conns, slots int // guarded by the server's mutex
	streams      atomic.Int64
}

func newClientShares(o *ServerOptions) clientShares {
	bound := func(limit, least int) int {
		return min(limit, max(least, int(float64(limit)*o.ClientShare)))
	}
	return clientShares{
		conns:   bound(o.MaxConns, leastConns),
		slots:   bound(o.MaxLanes, leastSlots),
		streams: bound(o.MaxStreams, leastStreams),
		clients: make(map[clientKey]*clientShare),
	}
}

// ofLocked returns what a client has.
func (s *clientShares) ofLocked(key clientKey) *clientShare {
	if share := s.clients[key]; share != nil {
		return share
	}
	return &clientShare{key: key}
}

// joinLocked counts a connection of a client.
func (s *clientShares) joinLocked(key clientKey) *clientShare {
	share := s.ofLocked(key)
	s.clients[key] = share
	share.conns++
	return share
}

// leaveLocked counts a connection less.
func (s *clientShares) leaveLocked(share *clientShare) {
	share.conns--
	s.forgetLocked(share)
}

// forgetLocked forgets a client that has nothing. Handlers may hold slots after their
// connection has ended.
func (s *clientShares) forgetLocked(share *clientShare) {
	if share.conns == 0 && share.slots == 0 && s.clients[share.key] == share {
		delete(s.clients, share.key)
	}
}

// identify moves a connection, which has no slots and streams yet, to the client that its
// peer has proved to be. It reports whether that client may have one more.
func (s *Server) identify(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.share.key == c.client {
		return true
	}
	s.shares.leaveLocked(c.share)
	c.share = s.shares.joinLocked(c.client)
	return c.share.conns <= s.shares.conns
}
