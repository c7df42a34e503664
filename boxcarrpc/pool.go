package boxcarrpc

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/page"
)

// A Pool is a client: a ladder of slots on a set of servers. It is safe for concurrent use.
//
// Its parts have their own locks. calls takes slots for requests and returns them; slots
// notifies members when the pool wants another slot, or one less; members connects to the
// servers and gives slots the lanes that they grant. As with grpc-go's pickers and
// balancers, the part that picks does no I/O and the part that connects picks nothing. A
// picker is a snapshot there; slots is not, because one call at a time may use a slot.
type Pool struct {
	options PoolOptions
	caller  Caller       // nil without interceptors
	opener  StreamOpener // nil without interceptors
	calls   calls
	slots   slots
	members members
}

// NewPool returns a pool that leases slots on the servers that d reports, in the
// background. opts may be nil. It does not wait for a server: see WaitReady.
func NewPool(d discovery.Source, opts *PoolOptions) (*Pool, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.checkTransport(d, opts != nil && opts.Dialer != nil); err != nil {
		return nil, err
	}
	p := &Pool{options: o}
	if len(o.Interceptors) > 0 {
		p.caller = chain(Caller(p.calls.call), o.Interceptors)
	}
	if len(o.StreamInterceptors) > 0 {
		p.opener = chain(StreamOpener(p.openStream), o.StreamInterceptors)
	}
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	p.slots.init(&p.options, clock{time.Now()}, seed, p.members.step)
	p.members.init(&p.options, &p.slots, seed, p.calls.check)
	p.calls.init(&p.options, &p.slots, &p.members)
	p.members.tasks.Go(func() { p.members.watch(d) })
	return p, nil
}

// Close closes the pool: calls in flight fail and connections are closed. It waits for all
// goroutines of the pool. Close is idempotent.
func (p *Pool) Close() error {
	p.slots.close()
	p.members.close()
	p.calls.sweeper.timer.Stop()
	return nil
}

// WaitReady waits until the pool holds a slot, also while no server is reachable. It returns
// ErrNoServer, together with the context's error, if ctx ends before.
func (p *Pool) WaitReady(ctx context.Context) error {
	ready := p.slots.ready()
	select {
	case <-ready:
		return nil
	case <-p.slots.hopeless:
		return p.slots.unusable()
	case <-p.members.ctx.Done():
		return ErrPoolClosed
	case <-ctx.Done():
		return p.members.noServer(ctx)
	}
}

// NoServerReason returns why no server grants the pool a slot, if waiting is unlikely to
// help: each server of its set is draining or does not speak Boxcar. The error matches
// ErrNoServer, and ErrDraining or ErrNotBoxcar. It is nil while the pool holds a slot,
// knows no server, or has a server that has not answered or may recover.
func (p *Pool) NoServerReason() error {
	if p.slots.held() > 0 {
		return nil
	}
	m := &p.members
	m.mu.Lock()
	defer m.mu.Unlock()
	var first error
	for _, peer := range m.mu.peers {
		if peer == nil || !m.slots.peer(peer.index).Member {
			continue
		}
		reason := m.refusal(peer)
		if reason == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("%w: %s: %w", ErrNoServer, peer.address, reason)
		}
	}
	return first
}

// HasTLS reports whether the pool encrypts its connections by TLS itself.
func (p *Pool) HasTLS() bool { return p.options.TLS != nil }

// PoolStats are a pool's gauges and counters at one moment.
type PoolStats struct {
	Known      int  // servers that the source reports
	Servers    int  // of these, in the pool's set: all, or its subset and the borrowed ones
	Borrowed   bool // the servers of the subset are dead or full, and others replace them
	Live       int  // of these, neither draining nor broken since their last answer
	Ejected    int  // of these, ejected because they fail requests
	Transports int  // open connections
	Size       int  // slots that the pool is to hold
	Slots      int  // slots held
	Busy       int  // of these, in use by a call or by an abandoned one that the server has not ended
	Waiting    int
	Streams    int    // open, and abandoned ones that the server has not ended
	Lowest     int    // lowest slot number held, -1 if none
	Highest    int    // highest slot number held, -1 if none
	Calls      uint64 // calls started
	Failed     uint64 // of these, failed with any error
	Rejected   uint64 // of these, failed because all slots were busy
	OtherZone  uint64 // attempts, first or further, on servers of other zones
	Retries    uint64 // attempts after the first of a call
	Unfunded   uint64 // retries that the retry budget did not allow
	Hedges     uint64 // second attempts of slow calls
	HedgesWon  uint64 // of these, answered first
	Leases     uint64 // slots leased
	Swaps      uint64 // of these, in exchange for a higher slot
	Lost       uint64 // slots lost with their transport or because of a panic
	Broken     uint64 // transports that failed
}

// Stats returns the pool's counters.
func (p *Pool) Stats() PoolStats {
	var r PoolStats
	p.slots.addStats(&r)
	c := &p.calls.counts
	r.Calls, r.Failed, r.Retries = c.calls.Load(), c.failed.Load(), c.retries.Load()
	r.Hedges, r.HedgesWon = c.hedges.Load(), c.hedgesWon.Load()
	m := &p.members
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Transports, r.Streams, r.Broken, r.Known = len(m.mu.open), m.mu.streams, m.mu.broken, r.Servers
	if m.mu.subset != nil {
		r.Known, r.Borrowed = m.mu.subset.Known(), m.mu.subset.Borrowed()
	}
	return r
}

// Handler serves a plain HTML page with the pool's ladder, slot by slot, and its servers.
func (p *Pool) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := p.view().Write(w); err != nil {
			p.options.Logger.Debug("cannot send the ladder page", "error", err)
		}
	})
}

// view returns the content of the page, with the slots in the order of use.
func (p *Pool) view() *page.View {
	stats := p.Stats()
	v := &page.View{Name: p.options.Name, Summary: []string{fmt.Sprintf("%d of %d slots, %d busy, %d calls waiting, %d streams; "+
		"%d of %d servers live, %d known, %d connections. "+
		"%d calls, %d failed, %d of these refused; %d further attempts. "+
		"%d slots leased, %d for a higher one; %d lost, %d connections broken.",
		stats.Slots, stats.Size, stats.Busy, stats.Waiting, stats.Streams,
		stats.Live, stats.Servers, stats.Known, stats.Transports,
		stats.Calls, stats.Failed, stats.Rejected, stats.Retries,
		stats.Leases, stats.Swaps, stats.Lost, stats.Broken)}}
	if p.options.Zone != "" {
		attempts := max(stats.Calls-stats.Rejected+stats.Retries+stats.Hedges, stats.OtherZone, 1)
		v.Summary = append(v.Summary, fmt.Sprintf("Zone %s: %.2f %% of all attempts went to servers of other zones.",
			p.options.Zone, 100*float64(stats.OtherZone)/float64(attempts)))
	}
	v.Slots = p.slots.views()
	m := &p.members
	m.mu.Lock()
	for _, peer := range m.mu.peers {
		switch {
		case peer == nil:
		case len(v.Servers) >= page.MaxServers && len(peer.transports) == 0:
			v.More++
		default:
			v.Servers = append(v.Servers, p.viewServer(peer))
		}
	}
	m.mu.Unlock()
	slices.SortFunc(v.Slots, func(a, b page.Slot) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Server, b.Server))
	})
	slices.SortFunc(v.Servers, func(a, b page.Server) int { return cmp.Compare(a.Number, b.Number) })
	return v
}

// viewServer describes a server. members.mu is held.
func (p *Pool) viewServer(peer *poolPeer) page.Server {
	info := p.slots.peer(peer.index)
	v := page.Server{
		Address: peer.address, Zone: peer.zoneName(), Number: peer.server.Number, Slots: info.Held, Connections: len(peer.transports),
		State: "ready",
	}
	for _, t := range peer.transports {
		v.Streams += t.streams
	}
	if len(peer.transports) > 0 {
		v.Name = peer.transports[0].hello.Name
	}
	switch {
	case !info.Member:
		v.State = "left the set"
	case info.Draining:
		v.State = "draining"
	case info.Isolated && peer.failure != nil:
		v.State = "in quarantine: " + peer.failure.Error()
	case info.Isolated:
		v.State = "in quarantine"
	case info.Ejected:
		v.State = "fails requests"
	case info.Suspect:
		v.State = "silent"
	case info.Paused:
		v.State = "refused a request"
	case len(peer.transports) == 0:
		v.State = "not connected"
	case !info.Trusted:
		v.State = "has not answered a request yet"
	case info.Borrowed:
		v.State = "borrowed, because the subset was dead or full"
	}
	return v
}
