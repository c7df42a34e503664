package boxcarrpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// hedgeSlack is the time by which the second attempt of a lone caller may be late. A caller
// that reads for itself sets a read deadline, which is expensive, once in this time.
const hedgeSlack = 2 * time.Millisecond

// A hedge is the second attempt of a call whose first one is slow. It never waits for a
// slot, uses a different server than the first attempt, and counts against the retry
// budget or that of its CallHedge.
//
// Most calls are answered before. They must not pay for it, so a hedge is made when its call
// has sent its request and begins to wait for other goroutines.
type hedge struct {
	peer   atomic.Int32    // index of the first attempt's server
	shared context.Context //nolint:containedctx // of both attempts; ends when one of them has an answer
	cancel context.CancelFunc
	timer  *time.Timer
	ended  chan struct{} // closed when the attempt has ended

	info CallInfo
	out  []byte
	err  error
}

// planHedge plans the second attempt of a call that waits for the response on a lane.
func (c *calls) planHedge(ctx context.Context, r *call, lane *clientLane) {
	h := &hedge{ended: make(chan struct{}), info: CallInfo{Metadata: r.metadata, Slot: -1}, err: errNotHedged}
	h.peer.Store(lane.transport.peer.index)
	if r.timeout {
		h.shared, h.cancel = context.WithDeadline(ctx, r.deadline)
	} else {
		h.shared, h.cancel = context.WithCancel(ctx)
	}
	second := *r
	second.info, second.hedgeAfter, second.hedges, second.timeout = &h.info, 0, true, false
	r.hedge = h
	elapsed := time.Duration(c.slots.now() - lane.picked)
	h.timer = time.AfterFunc(max(r.hedgeAfter-elapsed, 0), func() {
		defer close(h.ended)
		if h.out, h.err = c.hedgeAttempt(h, &second); h.err == nil {
			h.cancel()
		}
	})
}

// hedgeAttempt makes the second attempt.
func (c *calls) hedgeAttempt(h *hedge, r *call) ([]byte, error) {
	if r.hedging != nil && !r.hedging.Allow() {
		return nil, errNotHedged
	}
	lane := c.slots.acquireHedge(r.appendAvoided([]int32{h.peer.Load()}), r.hedging == nil)
	if lane == nil {
		return nil, errNotHedged
	}
	c.counts.hedges.Add(1)
	out, _, err := c.exchange(h.shared, lane, r, nil)
	return out, err
}

var errNotHedged = errors.New("boxcarrpc: no hedge was sent")

// endHedge returns the result of a call whose first attempt returned out and err: the first
// answer counts. The second attempt has ended when endHedge returns.
func (c *calls) endHedge(r *call, dst, out []byte, err error) ([]byte, error) {
	h := r.hedge
	defer h.cancel()
	if h.timer.Stop() {
		return out, err
	}
	if err == nil {
		h.cancel()
	}
	<-h.ended
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
