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

// A Pool is a client: a ladder of slots on a set of servers. It is safe for concurrent use.
type Pool struct {
	options PoolOptions
	caller  Caller       // nil without interceptors
	opener  StreamOpener // nil without interceptors
	start   time.Time    // start of the core's clock
	buffers responseBudget
	counts  struct {
		calls, failed, rejected, retries atomic.Uint64
		unfunded, hedges, hedgesWon      atomic.Uint64
	}

	unusable chan struct{} // closed when a server cannot be used because of the options

	ctx     context.Context // of the pool's own tasks
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // its goroutines
	sweeper cancelSweeper

	// The liveness check runs at its slow rate, because no answer is outstanding. Changed
	// under mu.
	livenessCheckSlow atomic.Bool

	mu struct {
		spin.Mutex
		closed  bool
		ladder  core.Client
		retries core.RetryBudget
		rng     rand.PCG
		peers   []*poolPeer // by the core's index; nil where there is none
		vacant  []int32     // indexes that are free again
		left    []*poolPeer // servers that left the set and still have transports
		subset  *poolSubset // nil: the pool uses every server
		// The error of the last Watch or snapshot, nil after a good one.
		sourceFailure error
		unusable      error // why a server cannot be used with the pool's options
		open          []*transport
		entries       []*clientLane // by the ladder's index
		waiters       []*waiter
		ready         chan struct{} // closed while a slot is held
		connected     chan struct{} // closed when the next connection is made

		wake *time.Timer // of the lease seeker
		tick *time.Timer // of the liveness check

		streams int // open on all transports

		leases, swaps, lost, broken uint64
	}
}

// A poolPeer is the pool's state of one server.
type poolPeer struct {
	index      int32
	server     discovery.Server
	address    string
	transports []*transport
	responses  atomic.Int64 // bytes of its responses in the response budget
	dialing    bool
	left       bool  // it is in the pool's list of left servers
	leaveAt    int64 // when its transports are closed, after it left the set
	failure    error // of the last dial or transport, nil after a successful one
}

// spareEntries is the number of additional entries in the ladder, for slots that were
// replaced while they were busy.
func spareEntries(size int) int { return 1 + size/8 }

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

// now returns the time of the core's clock.
func (p *Pool) now() int64 { return int64(time.Since(p.start)) }

// Close closes the pool: calls in flight fail and connections are closed. It waits for all
// goroutines of the pool. Close is idempotent.
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

// PoolStats are a pool's gauges and counters at one moment.
type PoolStats struct {
	Known      int  // servers that the source reports
	Servers    int  // of these, in the pool's set: all, or its subset and the borrowed ones
	Borrowed   bool // the servers of the subset are dead, and others replace them
	Live       int  // of these, not in quarantine and not draining
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

// finish ends the request of a lane. The slot is kept unless the server withdrew it or a
// better one has replaced it. lowest is the lowest free slot of the server according to the
// response; now is the pool's time.
func (p *Pool) finish(now int64, lane *clientLane, outcome core.Outcome, slotLost bool, lowest uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lane.entry < 0 {
		return
	}
	t := lane.transport
	entry := lane.entry
	if slotLost {
		p.mu.ladder.Lose(entry)
		p.mu.ladder.RecordOutcome(now, t.peer.index, core.Failure, &p.mu.rng)
		p.removeEntry(lane)
		p.mu.lost++
		t.mu.Lock()
		lane.state = clientUnleased
		t.leased--
		t.mu.Unlock()
		p.noteIdle(t)
		p.mu.ladder.RequestNow(now)
		p.step()
		p.serveWaiters()
		return
	}
	gone, wake := p.mu.ladder.Release(now, entry, core.Response{Outcome: outcome, Load: int32(lane.response.Load), Lowest: int32(lowest)}, &p.mu.rng)
	if gone {
		p.releaseSlot(lane)
	}
	switch {
	case p.trim() || gone:
		p.step()
	case wake:
		p.arm()
	}
	p.serveWaiters()
}

// removeEntry removes the lane of an entry that has left the ladder.
func (p *Pool) removeEntry(lane *clientLane) {
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

// releaseSlot releases the slot of an entry that has left the ladder.
func (p *Pool) releaseSlot(lane *clientLane) {
	p.removeEntry(lane)
	lane.transport.unlease(lane)
	p.noteIdle(lane.transport)
}

// noteIdle records when a transport has no lane and no stream left, and closes it if it is
// leaving.
func (p *Pool) noteIdle(t *transport) {
	if t.leased > 0 || t.streams > 0 {
		return
	}
	t.idleSince = p.now()
	if t.leaving {
		p.closeSoon(t, errGoingAway)
	}
}

// closeSoon closes a transport in a new goroutine, because the caller holds the pool's
// lock.
func (p *Pool) closeSoon(t *transport, cause error) {
	if !p.mu.closed {
		p.tasks.Go(func() { t.fail(cause) })
	}
}

// dropData releases the buffer of a response. The caller holds lane.transport.mu, or owns
// the lane because its request has ended.
func (p *Pool) dropData(lane *clientLane) {
	lane.dst = nil
	if lane.charged > 0 {
		p.buffers.give(&lane.transport.peer.responses, lane.charged)
		lane.charged = 0
	}
}
