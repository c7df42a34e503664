package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/wire"
)

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
	if limited {
		deadline = monotonic(deadline)
	}
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
		written := lane.transport.out.Reached(lane.ticket)
		err = broken(lane.transport, lane.failure, written)
		p.dropData(lane)
		return dst, (!written || c.rule.Idempotent) && !errors.Is(err, ErrPoolClosed), err
	}
	return p.conclude(ctx, lane, c.rule.Idempotent, dst)
}

// monotonic returns a deadline that can be compared with the pool's start. One
// without a monotonic clock reading, as of a parsed time, is one of the wall clock,
// which may have been set since the pool started.
func monotonic(deadline time.Time) time.Time {
	if deadline != deadline.Round(0) {
		return deadline
	}
	now := time.Now()
	return now.Add(deadline.Sub(now))
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

// noServer is the error of a call that has waited for a first slot until ctx ended.
// It says what is wrong with one of the servers or with their source, if known.
func (p *Pool) noServer(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.mu.peers {
		if peer == nil {
			continue
		}
		if reason := p.refusal(peer); reason != nil {
			return fmt.Errorf("%w: %w (%s: %w)", ErrNoServer, ctx.Err(), peer.address, reason)
		}
		if peer.failure != nil {
			return fmt.Errorf("%w: %w (%s: %v)", ErrNoServer, ctx.Err(), peer.address, peer.failure.Error()) // no cause of this error
		}
	}
	if p.mu.sourceFailure != nil {
		return fmt.Errorf("%w: %w (%v)", ErrNoServer, ctx.Err(), p.mu.sourceFailure.Error())
	}
	return fmt.Errorf("%w: %w", ErrNoServer, ctx.Err())
}

// NoServerReason reports why no server gives the pool a slot, when waiting longer is
// unlikely to help: each server of its set is draining or does not speak Boxcar. The
// error matches ErrNoServer, and ErrDraining or ErrNotBoxcar. NoServerReason is nil
// while the pool holds a slot, while it knows no server, and while a server has not
// answered or may recover by itself.
func (p *Pool) NoServerReason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ladder.Held() > 0 {
		return nil
	}
	var first error
	for _, peer := range p.mu.peers {
		if peer == nil || !p.mu.ladder.Peer(peer.index).Member {
			continue
		}
		reason := p.refusal(peer)
		if reason == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("%w: %s: %w", ErrNoServer, peer.address, reason)
		}
	}
	return first
}

// refusal is why a server gives out no slots, if it is one of the reasons that last.
// p.mu is held.
func (p *Pool) refusal(peer *poolPeer) error {
	switch {
	case p.mu.ladder.Peer(peer.index).Draining:
		return ErrDraining
	case errors.Is(peer.failure, ErrNotBoxcar):
		return peer.failure
	}
	return nil
}

// A CallInfo is what goes with a call beside its request and response.
type CallInfo struct {
	// Metadata goes with the request.
	Metadata Metadata

	// The rest is set while the call goes on, and the caller's when it has returned.

	// Header and Trailer came with the response, an error among them; nil if none
	// did.
	Header, Trailer Metadata
	// Server is the one that was asked last, nil if none was.
	Server *Peer
	// Slot is the one that the last attempt was on, -1 if there was none.
	Slot int
	// Attempts counts how often the request was given to a connection.
	Attempts int
}

// CallWith is Call, with what info holds, and fills the rest of info in; nil is
// like Call. Nothing touches info or reads its Metadata once it has returned.
func (p *Pool) CallWith(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	if p.caller != nil {
		return p.intercepted(ctx, method, request, dst, info)
	}
	return p.callPlain(ctx, method, request, dst, info)
}

// callPlain is CallWith without interceptors.
func (p *Pool) callPlain(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	if info != nil {
		*info = CallInfo{Metadata: info.Metadata, Slot: -1}
		if err := info.Metadata.check(); err != nil {
			return dst, err
		}
	}
	p.counts.calls.Add(1)
	out, err := p.call(ctx, method, request, dst, info)
	if err != nil {
		p.counts.failed.Add(1)
		return dst, err
	}
	return out, nil
}

// metadata is what goes with the request.
func (i *CallInfo) metadata() Metadata {
	if i == nil {
		return nil
	}
	return i.Metadata
}

// attempt takes note of an attempt on a lane.
func (i *CallInfo) attempt(lane *clientLane) {
	if i != nil {
		i.Server, i.Slot, i.Header, i.Trailer = lane.transport.server, int(lane.slot), nil, nil
		i.Attempts++
	}
}

// answered takes the metadata of a response.
func (i *CallInfo) answered(lane *clientLane) {
	if i != nil {
		i.Header, i.Trailer = lane.header, lane.trailer
	}
	lane.header, lane.trailer = nil, nil
}

// takeMetadata keeps the metadata of a response for the caller.
func (l *clientLane) takeMetadata(header, trailer []byte) {
	l.header, l.trailer = append(Metadata(nil), header...), append(Metadata(nil), trailer...)
}

// A limited is the context of a call whose own has no deadline: it ends CallTimeout
// later. Its timer and channel come into being when the call waits for them, which few
// do: most answers come before. One goroutine uses it.
type limited struct {
	context.Context           // the caller's
	deadline        time.Time // of the call
	within          context.Context
	cancel          context.CancelFunc // nil until the call waits
}

var limitedPool = sync.Pool{New: func() any { return new(limited) }}

// limit is context.WithTimeout for one call. release ends it: nobody may use it any
// more.
func limit(ctx context.Context, timeout time.Duration) *limited {
	l := limitedPool.Get().(*limited)
	l.Context, l.deadline = ctx, time.Now().Add(timeout)
	return l
}

func (l *limited) release() {
	if l.cancel != nil {
		l.cancel()
	}
	*l = limited{}
	limitedPool.Put(l)
}

func (l *limited) Deadline() (time.Time, bool) { return l.deadline, true }

func (l *limited) Done() <-chan struct{} {
	if l.cancel == nil {
		l.within, l.cancel = context.WithDeadline(l.Context, l.deadline)
	}
	return l.within.Done()
}

func (l *limited) Err() error {
	if l.cancel == nil {
		return l.Context.Err() // who has not waited has not waited for too long
	}
	return l.within.Err()
}
