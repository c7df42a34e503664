package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// retriesPerSecond is the number of retries that a pool may make per second regardless of
// its calls.
const retriesPerSecond = 10

// errRetryBudget is the reason for not making a retry that would be allowed otherwise.
var errRetryBudget error = &Error{Code: CodeResourceExhausted, Message: "the retry budget is used up"}

// A call holds what all attempts of a call share.
type call struct {
	method  string
	request []byte
	rule    Method
	info    *CallInfo // may be nil
	hedge   *hedge    // may be nil
}

// attempts sends a request until it is answered or must not be sent again.
func (p *Pool) attempts(ctx context.Context, c *call, dst []byte) ([]byte, error) {
	var (
		few   [4]int32
		tried = few[:0] // indexes of servers
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

// mergeAttemptErrors returns the error of an attempt after another one failed with last. If
// either may have been processed, so may the call.
func mergeAttemptErrors(last, err error) error {
	var before, e *Error
	if !errors.As(last, &before) || !before.Processed || !errors.As(err, &e) || e.Processed {
		return err
	}
	merged := *e
	merged.Processed = true
	return &merged
}

// retrySlotError returns the error of a call that got no slot. For a retry it includes the
// error of the last attempt, which says more.
func retrySlotError(last, err error) error {
	var e *Error
	if !errors.As(last, &e) {
		return err
	}
	return &Error{
		Code:      e.Code,
		Message:   "no retry",
		Processed: e.Processed,
		cause:     fmt.Errorf("%w (previous attempt: %w)", err, last),
	}
}

// A hedge is the second attempt of a call whose first one is slow. It never waits for a
// slot, uses a different server than the first attempt, and counts against the retry
// budget.
type hedge struct {
	peer atomic.Int32 // index of the first attempt's server plus one; 0 for none

	info CallInfo
	out  []byte
	err  error
}

// fillInfo adds the hedge's attempts to info and, if the hedge won, copies its result.
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

var errNotHedged = errors.New("boxcarrpc: no hedge was sent")

// setPrimary records the server of the first attempt.
func (h *hedge) setPrimary(peer int32) {
	if h != nil {
		h.peer.Store(peer + 1)
	}
}

// hedged makes a call and, after the method's HedgeAfter, a second attempt. The first
// answer counts. The other attempt is cancelled, and has ended when hedged returns.
func (p *Pool) hedged(ctx context.Context, c call, dst []byte) ([]byte, error) {
	ctx, cancel := p.hedgeContext(ctx)
	defer cancel()
	h := &hedge{info: CallInfo{Metadata: c.info.metadata(), Slot: -1}, err: errNotHedged}
	c.hedge = h
	second := c
	second.info = &h.info
	ended := make(chan struct{})
	timer := time.AfterFunc(c.rule.HedgeAfter, func() {
		defer close(ended)
		if h.out, h.err = p.hedgeAttempt(ctx, &second); h.err == nil {
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

// hedgeContext returns a context for both attempts. It ends after CallTimeout if ctx has no
// deadline.
func (p *Pool) hedgeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); !ok && p.options.CallTimeout > 0 {
		return context.WithTimeout(ctx, p.options.CallTimeout)
	}
	return context.WithCancel(ctx)
}

// hedgeAttempt makes the second attempt.
func (p *Pool) hedgeAttempt(ctx context.Context, c *call) ([]byte, error) {
	lane := p.acquireHedge(c.hedge.peer.Load() - 1)
	if lane == nil {
		return nil, errNotHedged
	}
	p.counts.hedges.Add(1)
	out, _, err := p.exchange(ctx, lane, c, nil)
	return out, err
}

// acquireHedge takes the best free slot of a server other than peer, if the retry budget
// allows it. It returns nil if there is none, or if peer is negative because the first
// attempt has no slot yet.
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
	return p.assign(now, entry)
}
