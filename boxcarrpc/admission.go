package boxcarrpc

import (
	"sync/atomic"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
)

// A refusal is the reason why a server does not accept a request. The first ones are those of
// package budget.
type refusal uint8

const (
	admitted          = refusal(budget.Admitted)
	refusedInFlight   = refusal(budget.TooManyInFlight)
	refusedRate       = refusal(budget.RateExceeded)
	refusedClientRate = refusal(budget.ClientRateExceeded)
)

const (
	refusedStopping refusal = iota + refusal(budget.Refusals)
	refusedNotAdmitted
	refusedDraining
	refusedBuffers
	refusedStreams
	refusedClientStreams
	refusedNoStreams
	refusedCanceled
	refusedLate
	refusals
)

// refusalTable has the code and message that the client gets, and the name in ServerStats.
var refusalTable = [refusals]struct {
	code    Code
	message string
	name    string
}{
	refusedStopping:      {CodeUnavailable, "the server is shutting down", "stopping"},
	refusedNotAdmitted:   {CodeUnavailable, "the client is no longer authenticated", "unwelcome"},
	refusedDraining:      {CodeUnavailable, "the server is being drained", "draining"},
	refusedBuffers:       {CodeResourceExhausted, "the server has no room for another request of the client", "buffers"},
	refusedInFlight:      {CodeResourceExhausted, "the server has too many requests in flight", "in_flight"},
	refusedRate:          {CodeResourceExhausted, "the server gets too many requests a second", "rate"},
	refusedClientRate:    {CodeResourceExhausted, "the client sends this server too many requests a second", "client_rate"},
	refusedStreams:       {CodeResourceExhausted, "the server has no room for the stream", "streams"},
	refusedClientStreams: {CodeResourceExhausted, "the client has too many streams on this server", "client_streams"},
	refusedNoStreams:     {CodeUnimplemented, "the server has no such stream", "no_streams"},
	refusedCanceled:      {CodeCanceled, "", "canceled"},
	refusedLate:          {CodeDeadlineExceeded, "", "deadline"},
}

// A refusalCount counts the refused requests, and those of batch among them.
type refusalCount struct {
	all, batch [refusals]atomic.Uint64
}

// add counts a request that is not admitted.
func (r *refusalCount) add(why refusal, batch bool) {
	r.all[why].Add(1)
	if batch {
		r.batch[why].Add(1)
	}
}

// totals returns the refusals by reason, those of batch among them, and all.
func (r *refusalCount) totals() (by, batch map[string]uint64, all uint64) {
	by, batch = make(map[string]uint64), make(map[string]uint64)
	for reason := admitted + 1; reason < refusals; reason++ {
		name := refusalTable[reason].name
		batch[name] = r.batch[reason].Load() // first: at most as many as all
		by[name] = r.all[reason].Load()
		all += by[name]
	}
	return by, batch, all
}

// Lower bounds of a client's share: a server with low limits is one with few clients.
const (
	leastSlots   = 1 << 10
	leastConns   = 1 << 7
	leastStreams = 1 << 7
)

// clientShares counts the connections, slots and streams of each client and limits them. It
// is guarded by the server's mutex.
type clientShares struct {
	conns, slots, streams int // limits of one client
	clients               map[budget.Client]*clientShare
	// handshaking are the connections whose clients are not identified yet, by the network of
	// their address.
	handshaking core.Unauthenticated[budget.Client, *serverConn]
}

// A clientShare counts the connections, slots and streams of one client.
type clientShare struct {
	key          budget.Client
	conns, slots int // guarded by the server's mutex
	streams      atomic.Int64
	tools        atomic.Int64 // built-in streams
}

func newClientShares(o *ServerOptions) clientShares {
	bound := func(limit, least int) int {
		return min(limit, max(least, int(float64(limit)*o.ClientShare)))
	}
	return clientShares{
		conns:   bound(o.MaxConns, leastConns),
		slots:   bound(o.MaxLanes, leastSlots),
		streams: bound(o.MaxStreams, leastStreams),
		clients: make(map[budget.Client]*clientShare),

		handshaking: core.NewUnauthenticated[budget.Client, *serverConn](bound(o.MaxConns, leastConns)),
	}
}

// ofLocked returns the share of a client.
func (s *clientShares) ofLocked(key budget.Client) *clientShare {
	if share := s.clients[key]; share != nil {
		return share
	}
	return &clientShare{key: key}
}

// joinLocked adds a connection of a client.
func (s *clientShares) joinLocked(key budget.Client) *clientShare {
	share := s.ofLocked(key)
	s.clients[key] = share
	share.conns++
	return share
}

// leaveLocked removes a connection.
func (s *clientShares) leaveLocked(share *clientShare) {
	share.conns--
	s.forgetLocked(share)
}

// forgetLocked deletes the share of a client that has nothing left. Handlers may hold slots
// and streams after their connection has ended.
func (s *clientShares) forgetLocked(share *clientShare) {
	if share.conns == 0 && share.slots == 0 && share.streams.Load() == 0 && share.tools.Load() == 0 && s.clients[share.key] == share {
		delete(s.clients, share.key)
	}
}
