package boxcarrpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A hedge is a second attempt beside one that takes long. It never waits for a
// slot, goes to another server than the attempt that it is beside, and is paid for
// like a further attempt.
type hedge struct {
	peer atomic.Int32 // that the attempt beside it is on, plus one; 0 for none

	info CallInfo // its own, as out is
	out  []byte
	err  error
}

// into tells the caller what became of a hedge: where it won, of its answer.
func (h *hedge) fillInfo(info *CallInfo, won bool) {
	if info == nil {
		return
	}
	attempts := info.Attempts + h.info.Attempts
	if won {
		*info = h.info
	}
	info.Attempts = attempts
}

var errNotHedged = errors.New("no hedge was sent")

// beside tells on which server the other attempt is.
func (h *hedge) setPrimary(peer int32) {
	if h != nil {
		h.peer.Store(peer + 1)
	}
}

// hedged makes a call and, if that takes longer than the method's HedgeAfter, a
// second attempt beside it. The first answer counts; the other attempt is
// cancelled, and over when hedged returns.
func (p *Pool) hedged(ctx context.Context, c call, dst []byte) ([]byte, error) {
	ctx, cancel := p.cancellable(ctx)
	defer cancel()
	h := &hedge{info: CallInfo{Metadata: c.info.metadata(), Slot: -1}, err: errNotHedged}
	c.hedge = h
	second := c
	second.info = &h.info
	ended := make(chan struct{})
	timer := time.AfterFunc(c.rule.HedgeAfter, func() {
		defer close(ended)
		if h.out, h.err = p.second(ctx, &second); h.err == nil {
			cancel()
		}
	})
	out, err := p.attempts(ctx, &c, dst)
	if timer.Stop() {
		return out, err
	}
	if err == nil {
		cancel()
	}
	<-ended
	h.fillInfo(c.info, err != nil && h.err == nil)
	switch {
	case err == nil:
		return out, nil
	case h.err == nil:
		p.counts.hedgesWon.Add(1)
		return append(dst, h.out...), nil
	}
	return dst, mergeAttemptErrors(h.err, err)
}

// cancellable is a context for both attempts, which ends CallTimeout later if ctx has
// no deadline.
func (p *Pool) cancellable(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); !ok && p.options.CallTimeout > 0 {
		return context.WithTimeout(ctx, p.options.CallTimeout)
	}
	return context.WithCancel(ctx)
}

// second makes the second attempt.
func (p *Pool) second(ctx context.Context, c *call) ([]byte, error) {
	lane := p.acquireHedge(c.hedge.peer.Load() - 1)
	if lane == nil {
		return nil, errNotHedged
	}
	p.counts.hedges.Add(1)
	out, _, err := p.exchange(ctx, lane, c, nil)
	return out, err
}

// acquireHedge takes the best free slot of another server than peer, if there is
// one and the budget allows; nil if not, and if there is no peer: the attempt
// beside has not even got a slot.
func (p *Pool) acquireHedge(peer int32) *clientLane {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.mu.closed || peer < 0 || !p.mu.retries.Withdraw(now) {
		return nil
	}
	p.checkLivenessSoon()
	entry, ok, _ := p.mu.ladder.AcquireOther(now, []int32{peer}, &p.mu.rng)
	if !ok {
		return nil
	}
	return p.picked(now, entry)
}
