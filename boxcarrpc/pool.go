package boxcarrpc

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/spin"
)

// A Pool is a client: a ladder of slots on the servers of a set. It is safe for
// concurrent use.
type Pool struct {
	options PoolOptions
	caller  Caller       // nil without interceptors
	opener  StreamOpener // nil without interceptors
	start   time.Time    // the origin of the core's time
	buffers responseBudget
	counts  struct {
		calls, failed, rejected, retries atomic.Uint64
		unfunded, hedges, hedgesWon      atomic.Uint64
	}

	unusable chan struct{} // closed when a server cannot be used because of the options

	ctx     context.Context // of everything that the pool does on its own
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // its goroutines
	sweeper cancelSweeper

	// The watch over silence runs slowly, because nothing is owed. Changed under mu.
	livenessCheckSlow atomic.Bool

	mu struct {
		spin.Mutex
		closed  bool
		ladder  core.Client
		retries core.RetryBudget
		rng     rand.PCG
		peers   []*poolPeer // by the core's index; nil where there is none
		vacant  []int32     // indexes that are free again
		left    []*poolPeer // servers that left the set and are not yet forgotten
		subset  *poolSubset // nil: the pool uses every server
		// Of the last Watch or snapshot, nil after a good one.
		sourceFailure error
		unusable      error // why a server cannot be used with the pool's options
		open          []*transport
		entries       []*clientLane // by the ladder's entry
		waiters       []*waiter
		ready         chan struct{} // closed while a slot is held
		connected     chan struct{} // closed with the next connection

		wake *time.Timer // the rover's
		tick *time.Timer // the watch over silence

		streams int // of all transports

		leases, swaps, lost, broken uint64
	}
}

// A poolPeer is a server as a pool knows it.
type poolPeer struct {
	index      int32
	server     discovery.Server
	address    string
	transports []*transport
	responses  atomic.Int64 // bytes of the pool's buffers for its responses
	dialing    bool
	left       bool  // in the pool's list of those that left
	leaveAt    int64 // when its transports are closed after it left the set
	failure    error // of the last dial or transport, nil after a good one
}

// spareEntries are places in the ladder for slots that were replaced while they
// were busy.
func spareEntries(size int) int { return 1 + size/8 }

// NewPool makes a pool and begins to fill it with slots on the servers that d
// reports. opts may be nil. It does not wait for a server: see WaitReady.
func NewPool(d discovery.Source, opts *PoolOptions) (*Pool, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.checkTransport(d, opts != nil && opts.Dialer != nil); err != nil {
		return nil, err
	}
	p := &Pool{options: o, start: time.Now(), unusable: make(chan struct{})}
	p.buffers.limit = o.BufferBytes
	if len(o.Interceptors) > 0 {
		p.caller = chain(Caller(p.callPlain), o.Interceptors)
	}
	if len(o.StreamInterceptors) > 0 {
		p.opener = chain(StreamOpener(p.openStream), o.StreamInterceptors)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	p.mu.rng.Seed(seed, seed)
	entries := o.Size + spareEntries(o.Size)
	p.mu.ladder = core.NewClient(o.Size, make([]core.Slot, entries), nil, o.PreferIdle)
	p.mu.entries = make([]*clientLane, entries)
	if o.HealthMethod != "" {
		p.mu.ladder.CheckHealth(int64(o.HealthInterval))
	}
	p.mu.retries = core.NewRetryBudget(0, o.RetryRatio, retriesPerSecond, int32(max(o.Size, retriesPerSecond)))
	if o.SubsetSize > 0 {
		p.mu.subset = newPoolSubset(o, seed)
	}
	p.mu.ready, p.mu.connected = make(chan struct{}), make(chan struct{})
	p.mu.wake = time.AfterFunc(math.MaxInt64, p.wakeUp)
	p.sweeper.timer = time.AfterFunc(math.MaxInt64, p.sweep)
	p.mu.tick = time.AfterFunc(math.MaxInt64, p.checkLiveness) // until checkLivenessSoon
	p.livenessCheckSlow.Store(true)
	p.tasks.Go(func() { p.watch(d) })
	return p, nil
}

// now is the core's time.
func (p *Pool) now() int64 { return int64(time.Since(p.start)) }

// Close ends the pool: calls under way fail, connections are closed. It returns
// when everything that the pool began has ended, and is idempotent.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.wake.Stop()
	p.mu.tick.Stop()
	p.sweeper.timer.Stop()
	open := slices.Clone(p.mu.open)
	for _, w := range p.mu.waiters {
		close(w.ready)
	}
	p.mu.waiters = nil
	p.mu.Unlock()
	p.cancel()
	for _, t := range open {
		t.fail(ErrPoolClosed)
	}
	p.tasks.Wait()
	return nil
}

// WaitReady waits until the pool holds a slot. It returns ErrNoServer, together
// with the context's error, if ctx ends before.
func (p *Pool) WaitReady(ctx context.Context) error {
	p.mu.Lock()
	ready := p.mu.ready
	p.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-p.unusable:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.ladder.Held() > 0 {
			return nil
		}
		return fmt.Errorf("%w: %w", ErrNoServer, p.mu.unusable)
	case <-p.ctx.Done():
		return ErrPoolClosed
	case <-ctx.Done():
		return p.noServer(ctx)
	}
}

// PoolStats is a pool at one moment.
type PoolStats struct {
	Known      int    // servers that the source tells of
	Servers    int    // of these, in the pool's set: all, or its subset and what that borrows
	Borrowed   bool   // the servers of the subset were dead, and others help out
	Live       int    // of these, neither in quarantine nor being drained
	Ejected    int    // of these, left out because they fail requests
	Transports int    // connections open now
	Size       int    // slots wanted
	Slots      int    // held now
	Busy       int    // with a request, or waiting for the end of an abandoned one
	Waiting    int    // calls that wait for a slot
	Streams    int    // open, or waiting for the end of an abandoned one
	Lowest     int    // lowest slot held, -1 if none
	Highest    int    // highest slot held, -1 if none
	Calls      uint64 // begun
	Failed     uint64 // of these, ended with an error of any kind
	Rejected   uint64 // of these, refused because all slots were busy
	Retries    uint64 // attempts after a first
	Unfunded   uint64 // that were not made, because the retry budget was used up
	Hedges     uint64 // attempts beside a slow one
	HedgesWon  uint64 // of these, the ones that were answered first
	Leases     uint64 // slots gained
	Swaps      uint64 // of these, for a higher one
	Lost       uint64 // slots lost with their transport or to a panic
	Broken     uint64 // transports that broke
}

// Stats returns the pool's counters.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := PoolStats{
		Live: p.mu.ladder.Live(), Ejected: p.mu.ladder.Ejected(), Size: p.options.Size, Slots: p.mu.ladder.Held(),
		Busy: p.mu.ladder.Busy(), Waiting: len(p.mu.waiters), Lowest: -1, Highest: -1,
		Leases: p.mu.leases, Swaps: p.mu.swaps, Lost: p.mu.lost, Broken: p.mu.broken,
		Calls: p.counts.calls.Load(), Failed: p.counts.failed.Load(),
		Rejected: p.counts.rejected.Load(), Retries: p.counts.retries.Load(),
		Unfunded: p.counts.unfunded.Load(), Hedges: p.counts.hedges.Load(), HedgesWon: p.counts.hedgesWon.Load(),
		Transports: len(p.mu.open), Streams: p.mu.streams, Servers: p.mu.ladder.Members(),
	}
	r.Known = r.Servers
	if p.mu.subset != nil {
		r.Known, r.Borrowed = len(p.mu.subset.snapshot.Servers), p.mu.subset.core.Borrowed()
	}
	for entry, lane := range p.mu.entries {
		if lane == nil {
			continue
		}
		number, _, _, _, _ := p.mu.ladder.Slot(int32(entry))
		if r.Lowest < 0 || int(number) < r.Lowest {
			r.Lowest = int(number)
		}
		r.Highest = max(r.Highest, int(number))
	}
	return r
}

// finish ends the request of a lane: the slot is kept, unless the server took it
// away or a better one has replaced it. lowest is the server's lowest free slot
// as the response told, now the pool's time.
func (p *Pool) finish(now int64, lane *clientLane, outcome core.Outcome, slotLost bool, lowest uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lane.entry < 0 {
		return // lost with its transport
	}
	t := lane.transport
	entry := lane.entry
	if slotLost {
		p.mu.ladder.Lose(entry)
		p.mu.ladder.RecordOutcome(now, t.peer.index, core.Failure, &p.mu.rng)
		p.drop(lane)
		p.mu.lost++
		t.mu.Lock()
		lane.state = clientUnleased
		t.leased--
		t.mu.Unlock()
		p.emptied(t)
		p.mu.ladder.RequestNow(now)
		p.step()
		p.serveWaiters()
		return
	}
	gone, wake := p.mu.ladder.Release(now, entry, core.Response{Outcome: outcome, Load: int32(lane.response.Load), Lowest: int32(lowest)}, &p.mu.rng)
	if gone {
		p.giveBack(lane)
	}
	switch {
	case p.trim() || gone:
		p.step() // there is room for another slot
	case wake:
		p.arm()
	}
	p.serveWaiters()
}

// drop forgets the lane of an entry that has left the ladder.
func (p *Pool) drop(lane *clientLane) {
	p.mu.entries[lane.entry] = nil
	lane.entry = -1
	if p.mu.ladder.Held() == 0 {
		select {
		case <-p.mu.ready:
			p.mu.ready = make(chan struct{})
		default:
		}
	}
}

// giveBack returns the slot of an entry that has left the ladder to its server.
func (p *Pool) giveBack(lane *clientLane) {
	p.drop(lane)
	lane.transport.unlease(lane)
	p.emptied(lane.transport)
}

// emptied looks whether a transport has just lost its last lane.
func (p *Pool) emptied(t *transport) {
	if t.leased > 0 || t.streams > 0 {
		return
	}
	t.idleSince = p.now()
	if t.leaving {
		p.closeSoon(t, errGoingAway)
	}
}

// closeSoon closes a transport from a goroutine of its own, because the caller
// holds the pool's lock.
func (p *Pool) closeSoon(t *transport, cause error) {
	if !p.mu.closed {
		p.tasks.Go(func() { t.fail(cause) })
	}
}

// dropData gives up the buffer of a response. The caller holds
// lane.transport.mu, or has the lane after it was done.
func (p *Pool) dropData(lane *clientLane) {
	lane.dst = nil
	if lane.charged > 0 {
		p.buffers.give(&lane.transport.peer.responses, lane.charged)
		lane.charged = 0
	}
}
