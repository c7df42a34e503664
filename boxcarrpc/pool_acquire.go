package boxcarrpc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

// fillWait is the minimum time that a call waits for a slot while the pool is leasing
// slots: after the loss of a server, or until an untried server has answered.
const fillWait = time.Second

// A waiter is a call that waits for a slot.
type waiter struct {
	tried []int32
	ready chan *clientLane // receives an acquired lane; closed with the pool
}

// acquire takes the best free slot, for a retry one of a server that was not tried, and
// waits for one if that is allowed.
func (p *Pool) acquire(ctx context.Context, tried []int32) (*clientLane, error) {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return nil, ErrPoolClosed
	}
	switch {
	case len(tried) == 0:
		p.mu.retries.Deposit()
	case !p.mu.retries.Withdraw(p.now()):
		p.mu.Unlock()
		p.counts.unfunded.Add(1)
		return nil, errRetryBudget
	}
	p.checkLivenessSoon()
	if lane := p.tryAcquire(tried); lane != nil {
		p.mu.Unlock()
		return lane, nil
	}
	other := len(tried) > 0 && p.mu.ladder.WantOther(tried, &p.mu.rng)
	if other {
		p.step() // requests the slot
	}
	patience := p.slotWait(tried, other)
	if patience <= 0 {
		p.mu.Unlock()
		p.counts.rejected.Add(1)
		return nil, ErrPoolBusy
	}
	w := &waiter{tried: slices.Clone(tried), ready: make(chan *clientLane, 1)}
	p.mu.waiters = append(p.mu.waiters, w)
	p.mu.Unlock()
	return p.wait(ctx, w, patience)
}

// tryAcquire takes a free slot, or returns nil. p.mu is held.
func (p *Pool) tryAcquire(tried []int32) *clientLane {
	now := p.now()
	entry, ok := p.mu.ladder.Acquire(now, tried, &p.mu.rng)
	if !ok {
		return nil
	}
	return p.assign(now, entry)
}

// assign gives the lane of an acquired entry to a call. p.mu is held.
func (p *Pool) assign(now int64, entry int32) *clientLane {
	lane := p.mu.entries[entry]
	lane.requests++
	lane.picked = now
	return lane
}

// slotWait returns the time for which a call may wait for a slot. other is set if a slot of
// an untried server has been requested. p.mu is held.
func (p *Pool) slotWait(tried []int32, other bool) time.Duration {
	waiting, retry := len(p.mu.waiters), len(tried) > 0
	switch {
	case waiting >= p.options.Size:
		return 0
	case !retry && p.mu.ladder.Busy()+waiting >= p.options.Size:
		return p.options.MaxWait
	case p.mu.ladder.Held() == 0, p.mu.ladder.Filling(), other:
		return max(p.options.RetryWait, fillWait)
	case retry:
		return p.options.RetryWait
	}
	return p.options.MaxWait
}

// wait waits for a slot: within the context while the pool holds none, else for at most
// patience.
func (p *Pool) wait(ctx context.Context, w *waiter, patience time.Duration) (*clientLane, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	unusable := p.unusable
	for {
		select {
		case lane, ok := <-w.ready:
			if !ok {
				return nil, ErrPoolClosed
			}
			return lane, nil
		case <-unusable:
			unusable = nil
			p.mu.Lock()
			if p.mu.ladder.Held() > 0 {
				p.mu.Unlock()
				continue
			}
			err := fmt.Errorf("%w: %w", ErrNoServer, p.mu.unusable)
			if lane := p.stopWaiting(w, false); lane != nil {
				return lane, nil
			}
			return nil, err
		case <-timer.C:
			p.mu.Lock()
			if p.mu.ladder.Held() == 0 && !p.mu.closed {
				p.mu.Unlock()
				timer.Reset(patience)
				continue
			}
			if lane := p.stopWaiting(w, true); lane != nil {
				return lane, nil
			}
			p.counts.rejected.Add(1)
			return nil, ErrPoolBusy
		case <-ctx.Done():
			p.mu.Lock()
			none := p.mu.ladder.Held() == 0
			if lane := p.stopWaiting(w, false); lane != nil {
				p.finish(p.now(), lane, core.Neutral, false, wire.NoSlot)
			}
			if none {
				return nil, p.noServer(ctx)
			}
			return nil, contextError(ctx, false)
		}
	}
}

// stopWaiting ends the wait. It returns a slot that arrived meanwhile or, if anySlot is
// set, any free slot, or nil. p.mu is held, and released.
func (p *Pool) stopWaiting(w *waiter, anySlot bool) *clientLane {
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.waiters, w); i >= 0 {
		p.mu.waiters = slices.Delete(p.mu.waiters, i, i+1)
		if anySlot {
			return p.tryAcquire(nil)
		}
		return nil
	}
	return <-w.ready // nil if the pool is closed
}

// serveWaiters gives free slots to waiting calls in the order of their arrival. p.mu is
// held.
func (p *Pool) serveWaiters() {
	for i := 0; i < len(p.mu.waiters) && p.mu.ladder.Free() > 0; {
		w := p.mu.waiters[i]
		lane := p.tryAcquire(w.tried)
		if lane == nil {
			i++
			continue
		}
		w.ready <- lane
		p.mu.waiters = slices.Delete(p.mu.waiters, i, i+1)
	}
}
