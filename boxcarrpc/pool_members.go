package boxcarrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/serverset"
	"docstore/boxcarrpc/subset"
)

// A source that failed is watched again after this pause.
const sourcePause = time.Second

// members are the servers of a pool and the connections to them. They follow the source,
// connect, request and give back lanes, and detect dead connections. The state of a server
// that decides how its slots are used is in the ladder of slots.
//
// Lock order: members.mu, slots.mu, transport.mu, the outbox's.
type members struct {
	clock
	options *PoolOptions
	slots   *slots
	check   func(*clientLane) // sends a health check and releases the lane
	buffers responseBudget

	ctx    context.Context // of the pool's own tasks
	cancel context.CancelFunc
	tasks  sync.WaitGroup // its goroutines

	// The liveness check runs at its slow rate, because no answer is outstanding. Changed
	// under mu.
	livenessCheckSlow atomic.Bool

	mu struct {
		sync.Mutex
		closed        bool
		peers         []*poolPeer       // by the core's index; nil where there is none
		vacant        []int32           // indexes that are free again
		left          []*poolPeer       // servers that left the set and still have transports
		subset        *serverset.Subset // nil: the pool uses every server
		sourceFailure error             // the error of the last Watch or snapshot, nil after a good one
		open          []*transport
		connected     chan struct{} // closed when the next connection is made
		wake          *time.Timer   // of step
		tick          *time.Timer   // of the liveness check
		streams       int           // open on all transports
		broken        uint64        // transports that failed
	}
}

// A poolPeer is the pool's state of one server.
type poolPeer struct {
	index      int32
	server     discovery.Server
	address    string
	zone       string // that the server said when it connected
	transports []*transport
	responses  atomic.Int64 // bytes of its responses in the response budget
	dialing    int          // transports that are being made
	streamed   int64        // when the last stream was opened
	moving     *clientLane  // that replaces another one, or that was replaced and is busy; nil: none
	spreading  bool         // the number of transports has changed, and lanes move
	spreadAt   int64        // the number of transports does not change before
	shared     bool         // warnIfShared has warned
	present    bool         // in the set that setServers makes
	left       bool         // it is in the list of left servers
	leaveAt    int64        // when its transports are closed, after it left the set
	failure    error        // of the last dial or transport, nil after a successful one
}

// streams returns the number of streams on the server. members.mu is held.
func (p *poolPeer) streams() (n int) {
	for _, t := range p.transports {
		n += t.streams
	}
	return n
}

// receivesUndrain returns the transport on which a draining server says that it no longer
// drains, nil if there is none.
func (p *poolPeer) receivesUndrain() *transport {
	for _, t := range p.transports {
		if t.draining && !t.leaving {
			return t
		}
	}
	return nil
}

func (m *members) init(o *PoolOptions, s *slots, seed uint64, check func(*clientLane)) {
	m.clock, m.options, m.slots, m.check = s.clock, o, s, check
	m.buffers.limit = o.BufferBytes
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if o.SubsetSize > 0 {
		m.mu.subset = newSubset(o, seed)
	}
	m.mu.connected = make(chan struct{})
	m.mu.wake = time.AfterFunc(math.MaxInt64, m.step)
	m.mu.tick = time.AfterFunc(math.MaxInt64, m.checkLiveness) // until checkLivenessSoon
	m.livenessCheckSlow.Store(true)
}

// close closes all connections and waits for all goroutines.
func (m *members) close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.wake.Stop()
	m.mu.tick.Stop()
	open := slices.Clone(m.mu.open)
	m.mu.Unlock()
	m.cancel()
	for _, t := range open {
		t.fail(ErrPoolClosed)
	}
	m.tasks.Wait()
}

// watch follows the source until the pool is closed.
func (m *members) watch(d discovery.Source) {
	for m.ctx.Err() == nil {
		err := d.Watch(m.ctx, m.follow)
		if m.ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		m.mu.sourceFailure = err
		m.mu.Unlock()
		m.options.Logger.Warn("discovery source failed", "error", err, "retry_in", sourcePause)
		select {
		case <-time.After(sourcePause):
		case <-m.ctx.Done():
		}
	}
}

// follow replaces the servers by those of a snapshot, or by a subset of them.
func (m *members) follow(snapshot discovery.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return
	}
	m.mu.sourceFailure = nil
	if subset := m.mu.subset; subset != nil {
		if err := subset.Follow(snapshot); err != nil {
			m.mu.sourceFailure = err
			m.options.Logger.Error("snapshot rejected, keeping the previous servers", "error", err)
			return
		}
		m.setServers(subset.Choose())
	} else {
		m.setServers(snapshot.Servers, nil)
	}
	m.stepLocked()
}

// updateBorrowing borrows servers if all of the subset are dead or full, and gives them back
// when they recover. m.mu is held.
func (m *members) updateBorrowing() (changed bool) {
	subset := m.mu.subset
	if subset == nil {
		return false
	}
	m.slots.update(func(_ int64, l *core.Client, _ *rand.PCG) { changed = subset.UpdateBorrowing(&l.Ladder) })
	if changed {
		own, borrowed := subset.Choose()
		m.setServers(own, borrowed)
		m.options.Logger.Info("subset resized", "servers", len(own)+len(borrowed), "borrowed", subset.Borrowed())
	}
	return changed
}

// setServers replaces the servers of the pool, and makes a lease request due. The borrowed
// ones stand in for dead or full ones. m.mu is held. Calls wait only while the ladder changes.
func (m *members) setServers(own, borrowed []discovery.Server) {
	known := make(map[string]*poolPeer, len(m.mu.peers))
	for _, peer := range m.mu.peers {
		if peer != nil {
			known[peer.address] = peer
		}
	}
	indexes := cap(m.mu.peers)
	joining := func(servers []discovery.Server) (peers []*poolPeer) {
		for _, server := range servers {
			peer := known[server.Address]
			if peer == nil {
				peer = m.addPeer(server.Address)
				known[server.Address] = peer
			}
			if !peer.present {
				peer.present, peer.server = true, server
				peers = append(peers, peer)
			}
		}
		return peers
	}
	owned, others := joining(own), joining(borrowed)
	least := min(leastWeight(own), leastWeight(borrowed))
	m.slots.update(func(now int64, l *core.Client, rng *rand.PCG) {
		if cap(m.mu.peers) > indexes {
			l.Grow(make([]core.Peer, cap(m.mu.peers)))
		}
		for _, peer := range owned {
			l.SetWeight(peer.index, weightOf(peer.server)/least)
			l.SetFar(peer.index, m.isFar(peer))
			l.Join(now, peer.index, rng)
		}
		for _, peer := range others {
			l.SetWeight(peer.index, weightOf(peer.server)/least)
			l.SetFar(peer.index, m.isFar(peer))
			l.Borrow(now, peer.index, rng)
		}
		for _, peer := range m.mu.peers {
			if peer != nil && !peer.present && l.Peer(peer.index).Member {
				m.leave(now, peer, l, rng)
			}
		}
		l.SetKnown()
		l.RequestNow(now)
	})
	for _, peer := range known {
		peer.present = false
	}
	m.forgetLeft()
}

// isFar reports whether a server is in another zone. m.mu is held.
func (m *members) isFar(peer *poolPeer) bool {
	return discovery.OtherZone(m.options.Zone, peer.zoneName())
}

// zoneName returns the server's zone: the source knows it, or the server said it.
func (p *poolPeer) zoneName() string { return cmp.Or(p.server.Zone, p.zone) }

// noteZone keeps the zone that a server said. m.mu is held.
func (m *members) noteZone(peer *poolPeer, zone string) {
	if peer.zone != zone {
		peer.zone = zone
		m.slots.update(func(_ int64, l *core.Client, _ *rand.PCG) { l.SetFar(peer.index, m.isFar(peer)) })
	}
}

// leave removes a server from the set. m.mu and the lock of slots are held.
func (m *members) leave(now int64, peer *poolPeer, l *core.Client, rng *rand.PCG) {
	l.Leave(peer.index)
	after := int64(m.options.LeaveAfter)
	peer.leaveAt = now + after + rand.New(rng).Int64N(after/10+1)
	if !peer.left {
		peer.left = true
		m.mu.left = append(m.mu.left, peer)
	}
}

// leastWeight returns the smallest weight.
func leastWeight(servers []discovery.Server) float64 {
	least := math.Inf(1)
	for _, s := range servers {
		least = min(least, weightOf(s))
	}
	return least
}

func weightOf(s discovery.Server) float64 {
	if s.Weight > 0 {
		return s.Weight
	}
	return 1
}

// addPeer adds a server; the caller grows the ladder to the capacity of peers. m.mu is held.
func (m *members) addPeer(address string) *poolPeer {
	peer := &poolPeer{index: int32(len(m.mu.peers)), address: address}
	if n := len(m.mu.vacant); n > 0 {
		peer.index = m.mu.vacant[n-1]
		m.mu.vacant = m.mu.vacant[:n-1]
		m.mu.peers[peer.index] = peer
		return peer
	}
	if len(m.mu.peers) == cap(m.mu.peers) {
		m.mu.peers = slices.Grow(m.mu.peers, max(16, len(m.mu.peers)))
	}
	m.mu.peers = append(m.mu.peers, peer)
	return peer
}

// forgetLeft retires the slots of servers whose LeaveAfter has passed, and removes servers
// without transports. m.mu is held.
func (m *members) forgetLeft() {
	now := m.now()
	m.mu.left = slices.DeleteFunc(m.mu.left, func(peer *poolPeer) bool {
		switch {
		case m.slots.peer(peer.index).Member:
			peer.left = false // it has returned
			return true
		case len(peer.transports) == 0 && peer.dialing == 0:
			m.slots.update(func(_ int64, l *core.Client, _ *rand.PCG) { l.Forget(peer.index) })
			m.mu.peers[peer.index] = nil
			m.mu.vacant = append(m.mu.vacant, peer.index)
			return true
		case now >= peer.leaveAt:
			for _, t := range peer.transports {
				if !t.leaving || t.thinning {
					m.retire(t)
				}
			}
		}
		return false
	})
}

// Reasons for not waiting for a slot.
var (
	errAllDown   = errors.New("all servers are unreachable or draining")
	errNoServers = errors.New("the source lists no server")
)

// noServer returns the error of a call that has waited for a first slot until ctx ended, or
// that does not wait because of an outage, with the last error of a server or of the source,
// if there is one.
func (m *members) noServer(ctx context.Context) error {
	why := ctx.Err()
	m.mu.Lock()
	defer m.mu.Unlock()
	if why == nil {
		if why = errAllDown; m.slots.members() == 0 {
			return fmt.Errorf("%w: %w", ErrNoServer, errNoServers)
		}
	}
	for _, peer := range m.mu.peers {
		if peer == nil || !m.slots.peer(peer.index).Member {
			continue
		}
		if reason := m.refusal(peer); reason != nil {
			return fmt.Errorf("%w: %w (%s: %w)", ErrNoServer, why, peer.address, reason)
		}
		if peer.failure != nil {
			return fmt.Errorf("%w: %w (%s: %v)", ErrNoServer, why, peer.address, peer.failure.Error()) // its text only: it must not match
		}
	}
	if m.mu.sourceFailure != nil {
		return fmt.Errorf("%w: %w (%v)", ErrNoServer, why, m.mu.sourceFailure.Error())
	}
	return fmt.Errorf("%w: %w", ErrNoServer, why)
}

// refusal returns why a server grants no slots, if the reason is permanent. m.mu is held.
func (m *members) refusal(peer *poolPeer) error {
	switch {
	case m.slots.peer(peer.index).Draining:
		return ErrDraining
	case errors.Is(peer.failure, ErrNotBoxcar):
		return peer.failure
	}
	return nil
}

// newSubset returns the subset of a pool with a SubsetSize.
func newSubset(o *PoolOptions, seed uint64) *serverset.Subset {
	algorithm := o.Subset
	if algorithm == nil {
		var err error
		if algorithm, err = subset.ByName("rocksteadier", nil); err != nil {
			panic(err) // the name is registered
		}
	}
	if o.Name != defaultName() {
		h := fnv.New64a()
		_, _ = h.Write([]byte(o.Name)) // never fails
		seed = h.Sum64()
	}
	return serverset.New(algorithm, o.SubsetSize, seed, o.Zone)
}
