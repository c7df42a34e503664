package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/page"
	"docstore/boxcarrpc/internal/spin"
)

const (
	// fillWait is the minimum time that a call waits for a slot while the pool is leasing
	// slots: after the loss of a server, or until an untried server has answered.
	fillWait = time.Second
	// retriesPerSecond is the number of retries that a pool may make per second regardless
	// of its calls.
	retriesPerSecond = 10
)

var (
	// errRetryBudget is the reason for not making a retry that would be allowed otherwise.
	errRetryBudget error = &Error{Code: CodeResourceExhausted, Message: "the retry budget is used up"}
	// errNoSlot: the context of a call ended while the pool held no slot, or the pool expects
	// none: see core.Client.Outage.
	errNoSlot = errors.New("no slot")
)

// A clock measures time in nanoseconds since start, as package core does.
type clock struct{ start time.Time }

func (c clock) now() int64 { return int64(time.Since(c.start)) }

// slots are the slots that a pool holds, and the calls that wait for one. They decide which
// slot a call gets and which server is to be asked for another; members does the asking.
//
// Invariants: lanes has a lane for each entry of the ladder in use. No call waits while
// there is a free slot that it may use, or during an outage. ready is closed while a slot is
// held. members reads returned, nextRequest and nextCheck after each call of due.
type slots struct {
	clock
	size      int
	maxWait   time.Duration
	retryWait time.Duration
	due       func() // called without a lock when members has something to do

	rejected, unfunded atomic.Uint64
	hopeless           chan struct{} // closed by giveUp

	mu struct {
		spin.Mutex
		closed   bool
		ladder   core.Client
		retries  core.RetryBudget
		rng      rand.PCG
		lanes    []*clientLane // by the ladder's index
		gone     []*clientLane // have left the ladder; the next ones that returned returns
		waiters  []*waiter
		ready    chan struct{}
		unusable error // the error of giveUp

		leases, swaps, lost uint64
	}
}

// A waiter is a call that waits for a slot.
type waiter struct {
	tried    []int32
	patience time.Duration
	ready    chan *clientLane // receives an acquired lane, or nil in an outage; closed with the pool
}

// spareEntries is the number of additional entries in the ladder, for slots that were
// replaced while they were busy.
func spareEntries(size int) int { return 1 + size/8 }

func (s *slots) init(o *PoolOptions, c clock, seed uint64, due func()) {
	s.clock, s.size, s.maxWait, s.retryWait, s.due = c, o.Size, o.MaxWait, o.RetryWait, due
	s.hopeless, s.mu.ready = make(chan struct{}), make(chan struct{})
	s.mu.rng.Seed(seed, seed)
	entries := o.Size + spareEntries(o.Size)
	s.mu.ladder = core.NewClient(o.Size, make([]core.Slot, entries), nil)
	s.mu.lanes = make([]*clientLane, entries)
	if o.HealthMethod != "" {
		s.mu.ladder.CheckHealth(int64(o.HealthInterval))
	}
	s.mu.retries = core.NewRetryBudget(0, o.RetryRatio, retriesPerSecond, int32(max(o.Size, retriesPerSecond)))
}

// close makes all present and future acquires fail.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for _, w := range s.mu.waiters {
		close(w.ready)
	}
	s.mu.waiters = nil
}

// acquire takes the best free slot, of a server that was not tried if there is one. If there
// is none and the call may wait for one, it returns a waiter. A retry needs the retry budget. now
// is read before the lock is taken, so it may be earlier than that of the acquire before.
func (s *slots) acquire(now int64, tried []int32, retry bool) (*clientLane, *waiter, error) {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil, nil, ErrPoolClosed
	}
	switch {
	case !retry:
		s.mu.retries.Deposit()
	case !s.mu.retries.Withdraw(now):
		s.mu.Unlock()
		s.unfunded.Add(1)
		return nil, nil, errRetryBudget
	}
	if entry, ok := s.mu.ladder.Acquire(now, tried, &s.mu.rng); ok {
		lane := s.assignLocked(now, entry)
		s.mu.Unlock()
		return lane, nil, nil
	}
	if s.mu.ladder.Outage() {
		s.mu.Unlock()
		return nil, nil, errNoSlot
	}
	other := len(tried) > 0 && s.mu.ladder.WantOther(tried, &s.mu.rng)
	var w *waiter
	if patience := s.patienceLocked(tried, retry, other); patience > 0 {
		w = &waiter{tried: slices.Clone(tried), patience: patience, ready: make(chan *clientLane, 1)}
		s.mu.waiters = append(s.mu.waiters, w)
	}
	s.mu.Unlock()
	if other {
		s.due() // requests the slot
	}
	if w == nil {
		s.rejected.Add(1)
		return nil, nil, ErrPoolBusy
	}
	return nil, w, nil
}

// acquireOther takes the best free slot of a server that is not in the first list, else of one
// that is not in the next, if the retry budget allows it or budgeted is not set. It returns
// nil if there is none.
func (s *slots) acquireOther(budgeted bool, excluded ...[]int32) *clientLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.mu.closed || budgeted && !s.mu.retries.Withdraw(now) {
		return nil
	}
	for _, servers := range excluded {
		if entry, ok, _ := s.mu.ladder.AcquireOther(now, servers, &s.mu.rng); ok {
			return s.assignLocked(now, entry)
		}
	}
	return nil
}

// takeLocked takes a free slot for a waiting call, or returns nil.
func (s *slots) takeLocked(tried []int32) *clientLane {
	now := s.now()
	entry, ok := s.mu.ladder.Acquire(now, tried, &s.mu.rng)
	if !ok {
		return nil
	}
	return s.assignLocked(now, entry)
}

// assignLocked gives the lane of an acquired entry to a call.
func (s *slots) assignLocked(now int64, entry int32) *clientLane {
	lane := s.mu.lanes[entry]
	lane.requests++
	lane.picked = now
	return lane
}

// patienceLocked returns the time for which a call may wait for a slot. other is set if a
// slot of an untried server has been requested.
func (s *slots) patienceLocked(tried []int32, retry, other bool) time.Duration {
	waiting := len(s.mu.waiters)
	switch {
	case waiting >= s.size:
		return 0
	case len(tried) == 0 && s.mu.ladder.Busy()+waiting >= s.size:
		return s.maxWait
	case s.mu.ladder.Held() == 0, s.mu.ladder.Filling(), other:
		return max(s.retryWait, fillWait)
	case retry:
		return s.retryWait
	case len(tried) > 0:
		return max(s.retryWait, s.maxWait)
	}
	return s.maxWait
}

// wait waits for a slot: within the context while the pool holds none, else for at most the
// waiter's patience. It returns errNoSlot if ctx ends while the pool holds none, or the pool
// is in an outage.
func (s *slots) wait(ctx context.Context, w *waiter) (*clientLane, error) {
	timer := time.NewTimer(w.patience)
	defer timer.Stop()
	hopeless := s.hopeless
	for {
		select {
		case lane, ok := <-w.ready:
			switch {
			case !ok:
				return nil, ErrPoolClosed
			case lane == nil:
				return nil, errNoSlot
			}
			return lane, nil
		case <-hopeless:
			hopeless = nil
			if err := s.unusable(); err != nil {
				if lane := s.stopWaiting(w, false); lane != nil {
					return lane, nil
				}
				return nil, err
			}
		case <-timer.C:
			if s.held() == 0 {
				timer.Reset(w.patience)
				continue
			}
			if lane := s.stopWaiting(w, true); lane != nil {
				return lane, nil
			}
			s.rejected.Add(1)
			return nil, ErrPoolBusy
		case <-ctx.Done():
			none := s.held() == 0
			if lane := s.stopWaiting(w, false); lane != nil {
				s.release(s.now(), lane, noAnswer, false)
			}
			if none {
				return nil, errNoSlot
			}
			return nil, contextError(ctx, false)
		}
	}
}

// stopWaiting ends the wait. It returns a slot that arrived meanwhile or, if anySlot is
// set, any free slot, or nil.
func (s *slots) stopWaiting(w *waiter, anySlot bool) *clientLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.mu.waiters, w); i >= 0 {
		s.mu.waiters = slices.Delete(s.mu.waiters, i, i+1)
		if anySlot {
			return s.takeLocked(nil)
		}
		return nil
	}
	return <-w.ready // nil if the pool is closed or in an outage
}

// serveLocked gives free slots to waiting calls in the order of their arrival.
func (s *slots) serveLocked() {
	for i := 0; i < len(s.mu.waiters) && s.mu.ladder.Free() > 0; {
		w := s.mu.waiters[i]
		lane := s.takeLocked(w.tried)
		if lane == nil {
			i++
			continue
		}
		w.ready <- lane
		s.mu.waiters = slices.Delete(s.mu.waiters, i, i+1)
	}
}

// noAnswer is the end of a request without information about the server.
var noAnswer = core.Response{Lowest: core.NoSlot}

// release ends the request of a lane. The slot is kept unless the server withdrew it (lost)
// or a better one has replaced it. now is the time of the answer. No lock is held.
func (s *slots) release(now int64, lane *clientLane, r core.Response, lost bool) {
	s.mu.Lock()
	entry := lane.entry
	if entry < 0 { // its transport has ended
		s.mu.Unlock()
		return
	}
	gone, due := true, true
	if lost {
		s.mu.ladder.Lose(entry)
		s.mu.ladder.RecordOutcome(now, lane.transport.peer.index, core.Failure, &s.mu.rng)
		s.mu.ladder.RequestNow(now)
		s.mu.lost++
	} else {
		gone, due = s.mu.ladder.Release(now, entry, r, &s.mu.rng)
	}
	if gone {
		lane.withdrawn = lost
		s.goneLocked(entry)
	}
	if len(s.mu.waiters) > 0 {
		s.serveLocked()
	}
	s.mu.Unlock()
	if due {
		s.due()
	}
}

// removeLocked removes the lane of an entry that has left the ladder.
func (s *slots) removeLocked(lane *clientLane) {
	s.mu.lanes[lane.entry] = nil
	lane.entry = -1
	s.setReadyLocked()
}

// setReadyLocked opens or closes the channel ready after the number of held slots changed.
func (s *slots) setReadyLocked() {
	held := s.mu.ladder.Held() > 0
	select {
	case <-s.mu.ready:
		if !held {
			s.mu.ready = make(chan struct{})
		}
	default:
		if held {
			close(s.mu.ready)
		}
	}
}

// The methods below are for members.

// update changes the state of servers in the ladder. change must not change its slots.
func (s *slots) update(change func(now int64, l *core.Client, rng *rand.PCG)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.now(), &s.mu.ladder, &s.mu.rng)
	s.serveLocked() // a retry may use a server that it has tried if no other is left
}

// recordOutcome records the outcome of a request that has no slot, or keeps it. No lock is
// held.
func (s *slots) recordOutcome(peer int32, outcome core.Outcome) {
	s.update(func(now int64, l *core.Client, rng *rand.PCG) { l.RecordOutcome(now, peer, outcome, rng) })
	s.due()
}

// peer returns the state of a server.
func (s *slots) peer(index int32) core.PeerInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ladder.Peer(index)
}

// replaced returns the lane that another slot of a server would replace, or nil.
func (s *slots) replaced(peer int32) *clientLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if victim, ok := s.mu.ladder.Victim(peer); ok && victim >= 0 {
		return s.mu.lanes[victim]
	}
	return nil
}

// returned returns a lane that has left the ladder, to be released, or nil.
func (s *slots) returned() *clientLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if entry, ok := s.mu.ladder.Trim(); ok {
		s.goneLocked(entry)
	}
	if len(s.mu.gone) == 0 {
		return nil
	}
	lane := s.mu.gone[0]
	s.mu.gone = slices.Delete(s.mu.gone, 0, 1)
	return lane
}

// goneLocked removes the lane of an entry that has left the ladder, for returned.
func (s *slots) goneLocked(entry int32) {
	lane := s.mu.lanes[entry]
	s.removeLocked(lane)
	s.mu.gone = append(s.mu.gone, lane)
}

// nextRequest returns the next lease request: see core.LeaseSeeker.NextRequest.
func (s *slots) nextRequest() (peer, below int32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ladder.NextRequest(s.now(), &s.mu.rng)
}

// endWaits makes the waiting calls fail in an outage. It is called after nextRequest.
func (s *slots) endWaits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.ladder.Outage() {
		return
	}
	for _, w := range s.mu.waiters {
		w.ready <- nil
	}
	s.mu.waiters = nil
}

// nextCheck returns a lane on which a health check is due, or nil.
func (s *slots) nextCheck() *clientLane {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if entry, ok := s.mu.ladder.Check(now, &s.mu.rng); ok {
		return s.assignLocked(now, entry)
	}
	return nil
}

// wakeIn returns the time until the next lease request or health check, almost 300 years if
// none is planned.
func (s *slots) wakeIn() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(max(s.mu.ladder.Wake()-s.now(), 0))
}

// grant puts a granted slot into the ladder. It returns false if the ladder no longer needs
// it.
func (s *slots) grant(lane *clientLane, slot int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	entry, victim, gone, ok := s.mu.ladder.Grant(now, lane.transport.peer.index, slot, &s.mu.rng)
	if ok {
		s.enterLocked(now, lane, entry, victim, gone)
	}
	return ok
}

// enterLocked puts a lane into its entry. The lane of victim, if it is not negative, has left the
// ladder if gone.
func (s *slots) enterLocked(now int64, lane *clientLane, entry, victim int32, gone bool) {
	lane.entry, lane.leasedAt, lane.requests = entry, now, 0
	s.mu.leases++
	if victim >= 0 {
		s.mu.swaps++
	}
	if gone {
		s.goneLocked(victim)
	}
	s.mu.lanes[entry] = lane
	s.setReadyLocked()
	s.serveLocked() // before returned, which retires a slot that only a retry wants
}

// move puts a granted slot into the ladder in the place of one of another transport of the server,
// if possible one that is free. It returns the lane that it replaced, which returned returns when
// it is free; nil if there is none.
func (s *slots) move(lane *clientLane, slot int32, from *transport) (replaced *clientLane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	victim := int32(-1)
	for i, l := range s.mu.lanes {
		if l == nil || l.transport != from {
			continue
		}
		_, _, busy, retiring, _ := s.mu.ladder.Slot(int32(i))
		if !retiring && (victim < 0 || !busy) {
			victim = int32(i)
		}
	}
	if victim < 0 {
		return nil
	}
	replaced = s.mu.lanes[victim]
	entry, gone, ok := s.mu.ladder.Move(victim, slot)
	if !ok {
		return nil
	}
	s.enterLocked(s.now(), lane, entry, victim, gone)
	return replaced
}

// retire removes the free slots of a transport at once and the busy ones when they are
// released.
func (s *slots) retire(t *transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for entry, lane := range s.mu.lanes {
		if lane != nil && lane.transport == t && s.mu.ladder.Retire(int32(entry)) {
			s.goneLocked(int32(entry))
		}
	}
	s.setReadyLocked() // a busy slot does not count as held either
}

// lose removes the slots of a transport that has ended.
func (s *slots) lose(t *transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for entry, lane := range s.mu.lanes {
		if lane != nil && lane.transport == t {
			s.mu.ladder.Lose(int32(entry))
			s.removeLocked(lane)
			s.mu.lost++
		}
	}
}

// giveUp makes calls fail with err while the pool holds no slot.
func (s *slots) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.unusable == nil {
		s.mu.unusable = err
		close(s.hopeless)
	}
}

// unusable returns the error of giveUp if the pool holds no slot.
func (s *slots) unusable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.unusable == nil || s.mu.ladder.Held() > 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoServer, s.mu.unusable)
}

// members returns the number of servers in the set.
func (s *slots) members() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ladder.Members()
}

// held returns the number of slots held.
func (s *slots) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ladder.Held()
}

// ready returns a channel that is closed while a slot is held.
func (s *slots) ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ready
}

// addStats sets the fields of r that concern slots.
func (s *slots) addStats(r *PoolStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.mu.ladder
	r.Servers, r.Live, r.Ejected = l.Members(), l.Live(), l.Ejected()
	r.Size, r.Slots, r.Busy, r.Waiting = s.size, l.Held(), l.Busy(), len(s.mu.waiters)
	r.OtherZone = l.Left()
	r.Rejected, r.Unfunded = s.rejected.Load(), s.unfunded.Load()
	r.Leases, r.Swaps, r.Lost = s.mu.leases, s.mu.swaps, s.mu.lost
	r.Lowest, r.Highest = -1, -1
	for entry, lane := range s.mu.lanes {
		if lane == nil {
			continue
		}
		number, _, _, _, _ := l.Slot(int32(entry))
		if r.Lowest < 0 || int(number) < r.Lowest {
			r.Lowest = int(number)
		}
		r.Highest = max(r.Highest, int(number))
	}
}

// views describes the slots for the page.
func (s *slots) views() (views []page.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for entry, lane := range s.mu.lanes {
		if lane == nil {
			continue
		}
		number, _, busy, leaving, _ := s.mu.ladder.Slot(int32(entry))
		views = append(views, page.Slot{
			Number: number, Server: lane.transport.peer.address, Busy: busy, Leaving: leaving, Requests: lane.requests,
			Age: time.Duration(now - lane.leasedAt).Truncate(time.Millisecond),
		})
	}
	return views
}
