package boxcarrpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A hedge is the second attempt of a call whose first one is slow. It never waits for a
// slot, uses a different server than the first attempt, and counts against the retry
// budget or that of its CallHedge.
//
// Most calls are answered before. They must not pay for it, so a hedge is made when its call
// has sent its request and begins to wait for other goroutines.
type hedge struct {
	shared   context.Context //nolint:containedctx // of both attempts; ends when one of them has an answer
	cancel   context.CancelFunc
	timer    *time.Timer
	ended    chan struct{} // closed when the attempt has ended
	answered atomic.Bool   // an attempt has an answer

	// The results, which may be read when ended is closed.
	info CallInfo
	out  []byte
	err  error
	won  bool // it had an answer first

	// servers are the indexes of the servers of both attempts. An attempt holds the mutex while
	// it takes a slot, so that it never takes one of the other's server.
	servers struct {
		sync.Mutex
		first, second int32 // second is -1 until the hedge is sent
	}
}

// planHedge plans the second attempt of a call that waits for the response on a lane.
func (c *calls) planHedge(ctx context.Context, r *call, lane *clientLane) {
	h := &hedge{ended: make(chan struct{}), info: CallInfo{Slot: -1}, err: errNotHedged}
	h.servers.first, h.servers.second = lane.transport.peer.index, -1
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
		var again bool
		h.out, again, h.err = c.hedgeAttempt(h, &second)
		if isAnswer(again, h.err) && h.shared.Err() == nil {
			h.won = h.answer()
		}
	})
}

// hedgeAttempt makes the second attempt.
func (c *calls) hedgeAttempt(h *hedge, r *call) (out []byte, again bool, err error) {
	if r.hedging != nil && !r.hedging.Allow() {
		return nil, false, errNotHedged
	}
	h.servers.Lock()
	lane := c.slots.acquireOther(r.hedging == nil, r.appendAvoided([]int32{h.servers.first}))
	if lane != nil {
		h.servers.second = lane.transport.peer.index
	}
	h.servers.Unlock()
	if lane == nil {
		return nil, false, errNotHedged
	}
	c.counts.hedges.Add(1)
	return c.exchange(h.shared, lane, r, nil)
}

// acquireRetry takes a slot for a retry of the first attempt. While the hedge runs, this is a
// free slot of another server, of an untried one if possible. If there is none, acquireRetry
// returns nil: the hedge is the retry.
func (c *calls) acquireRetry(r *call, tried []int32) (*clientLane, error) {
	h := r.hedge
	h.servers.Lock()
	defer h.servers.Unlock()
	if h.servers.second >= 0 {
		tried = append(tried, h.servers.second)
	}
	var lane *clientLane
	var err error
	if h.running() {
		lane = c.slots.acquireOther(true, tried, []int32{h.servers.second})
	} else {
		var w *waiter
		if lane, w, err = c.slots.acquire(c.slots.now(), tried, true); lane == nil {
			lane, err = c.waitForSlot(h.shared, r, w, err)
		}
	}
	if lane != nil {
		h.servers.first = lane.transport.peer.index
	}
	return lane, err
}

// running reports whether the hedge was sent and has not ended. h.servers is locked.
func (h *hedge) running() bool {
	select {
	case <-h.ended:
		return false
	default:
		return h.servers.second >= 0
	}
}

// isAnswer reports whether the result of an attempt ends its call: a response, or an error of
// a processed request that may not be sent again.
func isAnswer(again bool, err error) bool {
	if err == nil {
		return true
	}
	var e *Error
	return !again && errors.As(err, &e) && e.Processed
}

// answer records that an attempt has an answer, ends the other attempt, and reports whether
// the answer is the first.
func (h *hedge) answer() bool {
	first := h.answered.CompareAndSwap(false, true)
	h.cancel()
	return first
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
	won := r.answered && h.answer() || err == nil // a response is better than an error before it
	<-h.ended
	h.fillInfo(r.info, !won && h.won)
	switch {
	case won:
		return out, err
	case !h.won:
		return dst, mergeAttemptErrors(h.err, err)
	}
	c.counts.hedgesWon.Add(1)
	if h.err != nil {
		return dst, h.err
	}
	return append(dst, h.out...), nil
}

// fillInfo adds the hedge's attempts to info and, if the hedge won, copies its result. It
// keeps the fields that the caller has set.
func (h *hedge) fillInfo(info *CallInfo, won bool) {
	if info == nil {
		return
	}
	info.Attempts += h.info.Attempts
	if won {
		info.Header, info.Trailer, info.Server, info.Slot = h.info.Header, h.info.Trailer, h.info.Server, h.info.Slot
	}
}
