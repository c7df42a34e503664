package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// DefaultRetryRatio is the default of PoolOptions.RetryRatio.
	DefaultRetryRatio = 0.2
	// A pool may make so many further attempts a second whatever its calls are.
	retriesPerSecond = 10
)

// errRetryBudget is why there is no further attempt although the request may be
// sent again.
var errRetryBudget error = &Error{Code: CodeResourceExhausted, Message: "the retry budget is used up"}

// A call is what all attempts of one have in common.
type call struct {
	method  string
	request []byte
	rule    Method
	info    *CallInfo // nil: nobody asks
	hedge   *hedge    // nil: none
}

// attempts sends a request until it is answered or is not to be sent again.
func (p *Pool) attempts(ctx context.Context, c *call, dst []byte) ([]byte, error) {
	var (
		few   [4]int32
		tried = few[:0] // servers
		last  error
	)
	for n := 0; ; n++ {
		lane, err := p.acquire(ctx, tried)
		if err != nil {
			return dst, retrySlotError(last, err)
		}
		if n > 0 {
			p.counts.retries.Add(1)
		}
		peer := lane.transport.peer.index
		c.hedge.setPrimary(peer)
		out, again, err := p.exchange(ctx, lane, c, dst)
		if err == nil {
			return out, nil
		}
		err = mergeAttemptErrors(last, err)
		if !again || n >= p.options.MaxRetries || ctx.Err() != nil {
			return dst, err
		}
		tried, last = append(tried, peer), err
	}
}

// mergeAttemptErrors is the error of an attempt after another: if either may have been
// processed, the call may.
func mergeAttemptErrors(last, err error) error {
	var before, e *Error
	if !errors.As(last, &before) || !before.Processed || !errors.As(err, &e) || e.Processed {
		return err
	}
	stained := *e
	stained.Processed = true
	return &stained
}

// retrySlotError is the error of a call that got no slot: if it was for a further
// attempt, what became of the last one says more.
func retrySlotError(last, err error) error {
	var e *Error
	if !errors.As(last, &e) {
		return err
	}
	return &Error{
		Code:      e.Code,
		Message:   "no further attempt",
		Processed: e.Processed,
		cause:     fmt.Errorf("%w (the attempt before: %w)", err, last),
	}
}

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
