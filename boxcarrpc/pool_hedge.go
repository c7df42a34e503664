package boxcarrpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

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

// hedged makes a call and, after the method's HedgeAfter, a second attempt. The first
// answer counts. The other attempt is cancelled, and has ended when hedged returns.
func (c *calls) hedged(ctx context.Context, r call, dst []byte) ([]byte, error) {
	ctx, cancelTimeout := r.context(ctx)
	defer cancelTimeout()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hedge{info: CallInfo{Metadata: r.metadata, Slot: -1}, err: errNotHedged}
	r.hedge, r.timeout = h, false
	second := r
	second.info = &h.info
	ended := make(chan struct{})
	timer := time.AfterFunc(r.rule.HedgeAfter, func() {
		defer close(ended)
		if h.out, h.err = c.hedgeAttempt(ctx, &second); h.err == nil {
			cancel()
		}
	})
	out, err := c.attempts(ctx, &r, dst)
	if timer.Stop() {
		return out, err
	}
	if err == nil {
		cancel()
	}
	<-ended
	h.fillInfo(r.info, err != nil && h.err == nil)
	switch {
	case err == nil:
		return out, nil
	case h.err == nil:
		c.counts.hedgesWon.Add(1)
		return append(dst, h.out...), nil
	}
	return dst, mergeAttemptErrors(h.err, err)
}

// hedgeAttempt makes the second attempt.
func (c *calls) hedgeAttempt(ctx context.Context, r *call) ([]byte, error) {
	lane := c.slots.acquireHedge(r.hedge.peer.Load() - 1)
	if lane == nil {
		return nil, errNotHedged
	}
	c.counts.hedges.Add(1)
	out, _, err := c.exchange(ctx, lane, r, nil)
	return out, err
}
