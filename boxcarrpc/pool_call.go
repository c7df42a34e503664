package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

// fillWait is how long a call waits at least while slots are missing and the
// rover is getting them, as after the loss of a server.
const fillWait = time.Second

// Call sends a request to the server of the lowest free slot, appends the
// response to dst and returns the extended slice. On an error it returns dst as
// it was. Request and the room behind dst must not overlap: the response is
// written there while it arrives. Nothing reads request or writes to dst after
// Call has returned.
// It returns when ctx's deadline passes, and within 20 ms after ctx is cancelled.
//
// If as many calls as the pool has slots are under way, it fails at once with
// ErrPoolBusy. If the pool holds no slot at all, it waits within ctx for the
// first one, and then fails with ErrNoServer. A request that certainly was not
// processed, or any request of an idempotent method, is sent again on the next
// best slot of a server that this call has not tried, at most MaxRetries times and
// within the pool's retry budget.
// Any other failure is an *Error; see [Error] for what it tells.
func (p *Pool) Call(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	return p.CallWith(ctx, method, request, dst, nil)
}

func (p *Pool) call(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	if len(method) > MaxMethodBytes || len(request) > MaxRequestBytes {
		return dst, &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf(
			"request of %d bytes to a method of %d: at most %d and %d are allowed",
			len(request), len(method), MaxRequestBytes, MaxMethodBytes)}
	}
	c := call{method: method, request: request, rule: p.options.Methods[method], info: info}
	if c.rule.HedgeAfter > 0 {
		return p.hedged(ctx, c, dst)
	}
	if _, ok := ctx.Deadline(); !ok && p.options.CallTimeout > 0 {
		within := limit(ctx, p.options.CallTimeout)
		defer within.release()
		ctx = within
	}
	return p.attempts(ctx, &c, dst)
}

// exchange sends a request on a lane and awaits the response. again says that
// another server may be asked.
func (p *Pool) exchange(ctx context.Context, lane *clientLane, c *call, dst []byte) (out []byte, again bool, err error) {
	if ctx.Err() != nil {
		p.finish(p.now(), lane, core.Neutral, false, wire.NoSlot)
		return dst, false, contextError(ctx, false)
	}
	if limit := lane.transport.hello.MaxRequest; uint64(len(c.request)) > uint64(limit) {
		p.finish(p.now(), lane, core.Neutral, false, wire.NoSlot)
		return dst, false, tooLongForServer(lane.transport, len(c.request))
	}
	deadline, limited := ctx.Deadline()
	// A hedged call is to hear of the other's answer at once.
	alone := c.hedge == nil && (!limited || deadline.Sub(p.start)-time.Duration(lane.picked) > nearDeadline)
	c.info.attempt(lane)
	reads, err := lane.send(c.method, c.info.metadata(), c.request, dst, deadline, alone)
	if err != nil {
		p.lose(lane.transport, err) // who fails it may be about to; no further attempt shall be on it
		return dst, !errors.Is(err, ErrPoolClosed), broken(lane.transport, err, false)
	}
	switch {
	case reads && c.hedge != nil:
		lane.transport.turn.pass <- struct{}{}
	case reads:
		lane.transport.readFor(lane, deadline)
	}
	if !p.await(ctx, lane, alone) {
		p.overdue(lane.transport, ctx.Err())
		return dst, false, contextError(ctx, true) // what has not been sent yet may still be
	}
	c.info.answered(lane)
	if lane.failure != nil {
		written := lane.transport.out.reached(lane.ticket)
		err = broken(lane.transport, lane.failure, written)
		p.dropData(lane)
		return dst, (!written || c.rule.Idempotent) && !errors.Is(err, ErrPoolClosed), err
	}
	return p.conclude(ctx, lane, c.rule.Idempotent, dst)
}

func tooLongForServer(t *transport, n int) error {
	return &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf("request of %d bytes, %s takes %d", n, t.peer.address, t.hello.MaxRequest)}
}

// conclude takes the response off a lane and frees it.
func (p *Pool) conclude(ctx context.Context, lane *clientLane, idempotent bool, dst []byte) (out []byte, again bool, err error) {
	var (
		code      = Code(lane.response.Code)
		processed = lane.flags&wire.FlagProcessed != 0
		slotLost  = lane.flags&wire.FlagSlotLost != 0
		outcome   = core.Success
	)
	switch {
	case lane.overrun:
		err = &Error{
			Code:      CodeResourceExhausted,
			Message:   fmt.Sprintf("the pool has no room for a response of %d bytes", lane.response.Total),
			Processed: processed,
		}
		outcome = core.Neutral
	case code == CodeOK:
		dst = lane.dst
	default:
		err = &Error{Code: code, Message: string(lane.dst[lane.begin:]), Processed: processed, cause: ownCause(ctx, code)}
		again = !processed && code.mayBeUnprocessed() || idempotent && (code == CodeUnavailable || slotLost)
		outcome = outcomeOf(code, processed)
	}
	lowest := lane.response.Lowest
	p.dropData(lane)
	p.finish(lane.answered, lane, outcome, slotLost, lowest)
	return dst, again, err
}

// ownCause is why the caller's context ended, if it did and the server says the
// same: both watch the deadline, and either may be the first to act on it.
func ownCause(ctx context.Context, code Code) error {
	if ctx.Err() != nil && CodeOf(ctx.Err()) == code {
		return context.Cause(ctx)
	}
	return nil
}

// outcomeOf is what the answer to a request says of its server.
func outcomeOf(code Code, processed bool) core.Outcome {
	switch {
	case !processed && code.mayBeUnprocessed():
		return core.Refused
	case code.blamesServer() || code == CodeDeadlineExceeded:
		return core.Failure
	case code == CodeCanceled:
		return core.Neutral
	}
	return core.Success
}

// broken is the error of a request whose transport ended.
func broken(t *transport, cause error, written bool) error {
	if errors.Is(cause, ErrPoolClosed) {
		return &Error{Code: CodeCanceled, Processed: written, cause: ErrPoolClosed}
	}
	return &Error{
		Code:      CodeUnavailable,
		Message:   "the connection to " + t.peer.address + " ended",
		Processed: written,
		cause:     cause,
	}
}

// contextError is the error of a call whose context ended.
func contextError(ctx context.Context, processed bool) error {
	return &Error{Code: CodeOf(ctx.Err()), Processed: processed, cause: context.Cause(ctx)}
}

// noServer is the error of who has waited for a first slot until ctx ended. It says
// what is wrong with one of the servers, if anything is known.
func (p *Pool) noServer(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.mu.peers {
		if peer != nil && peer.failure != nil {
			return fmt.Errorf("%w: %w (%s: %v)", ErrNoServer, ctx.Err(), peer.address, peer.failure.Error()) // no cause of this error
		}
	}
	return fmt.Errorf("%w: %w", ErrNoServer, ctx.Err())
}

// A waiter is a call that waits for a slot.
type waiter struct {
	tried []int32
	ready chan *clientLane // gets a busy lane; closed when the pool is
}

// acquire takes the best free slot; for a further attempt one of a server that
// was not tried, if the pool holds any.
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
	p.attend()
	if lane := p.pick(tried); lane != nil {
		p.mu.Unlock()
		return lane, nil
	}
	patience := p.patience(len(tried) > 0)
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

// pick takes a slot if one is free. p.mu is held.
func (p *Pool) pick(tried []int32) *clientLane {
	now := p.now()
	if p.mu.chooser != nil {
		return p.mu.chooser.pick(now, tried)
	}
	if len(tried) > 0 {
		entry, ok, other := p.mu.ladder.AcquireOther(now, tried, &p.mu.rng)
		if ok {
			return p.picked(now, entry)
		}
		if other || p.expectsOther(tried) {
			return nil // worth waiting for
		}
	}
	entry, ok := p.mu.ladder.Acquire(now, &p.mu.rng)
	if !ok {
		return nil
	}
	return p.picked(now, entry)
}

// expectsOther tells whether there are servers, in no quarantine, that were not
// tried and of which the pool holds no slot: the rover may be about to get one.
// So it is just after the pool was made, when the first server to answer has
// filled the ladder.
func (p *Pool) expectsOther(tried []int32) bool { return p.mu.ladder.Live() > len(tried) }

func (p *Pool) picked(now int64, entry int32) *clientLane {
	lane := p.mu.entries[entry]
	lane.requests++
	lane.picked = now
	return lane
}

// patience is how long a call may wait for a slot now that there is none for
// it. p.mu is held.
func (p *Pool) patience(retry bool) time.Duration {
	waiting := len(p.mu.waiters)
	switch {
	case waiting >= p.options.Size:
		return 0
	case !retry && p.mu.ladder.Busy()+waiting >= p.options.Size:
		return p.options.MaxWait
	case p.mu.ladder.Held() == 0, p.mu.rover.Filling(&p.mu.ladder):
		return max(p.options.RetryWait, fillWait)
	case retry:
		return p.options.RetryWait
	}
	return p.options.MaxWait
}

// wait waits for a slot: while the pool holds none within the context, else
// with patience.
func (p *Pool) wait(ctx context.Context, w *waiter, patience time.Duration) (*clientLane, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case lane, ok := <-w.ready:
			if !ok {
				return nil, ErrPoolClosed
			}
			return lane, nil
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

// stopWaiting ends the wait and returns the slot that came at the same moment,
// if one did, or, as a last resort, any slot at all. p.mu is held, and released.
func (p *Pool) stopWaiting(w *waiter, anySlot bool) *clientLane {
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.waiters, w); i >= 0 {
		p.mu.waiters = slices.Delete(p.mu.waiters, i, i+1)
		if anySlot {
			return p.pick(nil)
		}
		return nil
	}
	return <-w.ready // nil if the pool has been closed
}

// serveWaiters gives free slots to the calls that wait, the first come first.
// p.mu is held.
func (p *Pool) serveWaiters() {
	for i := 0; i < len(p.mu.waiters) && p.mu.ladder.Free() > 0; {
		w := p.mu.waiters[i]
		lane := p.pick(w.tried)
		if lane == nil {
			i++
			continue
		}
		w.ready <- lane
		p.mu.waiters = slices.Delete(p.mu.waiters, i, i+1)
	}
}
