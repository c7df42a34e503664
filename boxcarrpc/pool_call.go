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

// Call sends a request to the server of the lowest free slot, appends the response to dst
// and returns the extended slice. On an error it returns dst unchanged. request must not
// overlap the capacity of dst, to which the response is written while it arrives. Call does
// not use request or dst after it has returned. It returns when ctx's deadline passes, and
// within 20 ms after ctx is cancelled.
//
// If all slots of the pool are busy, Call fails at once with ErrPoolBusy. If the pool holds
// no slot, Call waits within ctx for the first one, and then fails with ErrNoServer. A
// request that certainly was not processed, or any request of an idempotent method, is sent
// again on the best slot of a server that this call has not tried, at most MaxRetries times
// and within the pool's retry budget. Any other failure is an *Error: see [Error].
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
		within := newLimited(ctx, p.options.CallTimeout)
		defer within.release()
		ctx = within
	}
	return p.attempts(ctx, &c, dst)
}

// exchange sends a request on a lane and waits for the response. again reports whether
// another server may be tried.
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
	// A hedged call must notice the answer of the other attempt at once.
	alone := c.hedge == nil && (!limited || deadline.Sub(p.start)-time.Duration(lane.picked) > nearDeadline)
	c.info.attempt(lane)
	reads, err := lane.send(c.method, c.info.metadata(), c.request, dst, deadline, alone)
	if err != nil {
		p.removeTransport(lane.transport, err) // before the failing goroutine does, so that no other attempt uses the transport
		return dst, !errors.Is(err, ErrPoolClosed), transportError(lane.transport, err, false)
	}
	switch {
	case reads && c.hedge != nil:
		lane.transport.turn.pass <- struct{}{}
	case reads:
		lane.transport.readFor(lane, deadline)
	}
	if !p.await(ctx, lane, alone) {
		p.recordTimeout(lane.transport, ctx.Err())
		return dst, false, contextError(ctx, true) // unsent bytes may still be sent
	}
	c.info.answered(lane)
	if lane.failure != nil {
		written := lane.transport.out.Reached(lane.ticket)
		err = transportError(lane.transport, lane.failure, written)
		p.dropData(lane)
		return dst, (!written || c.rule.Idempotent) && !errors.Is(err, ErrPoolClosed), err
	}
	return p.conclude(ctx, lane, c.rule.Idempotent, dst)
}

// monotonic returns a deadline with a monotonic clock reading. A deadline without one, as
// of a parsed time, refers to the wall clock, which may have been changed since the pool
// started.
func monotonic(deadline time.Time) time.Time {
	if deadline != deadline.Round(0) {
		return deadline
	}
	now := time.Now()
	return now.Add(deadline.Sub(now))
}

func tooLongForServer(t *transport, n int) error {
	return &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf("request of %d bytes: server %s accepts at most %d", n, t.peer.address, t.hello.MaxRequest)}
}

// conclude takes the response from a lane and releases the lane.
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

// ownCause returns the cause of the caller's context if it ended with the code that the
// server reports: both watch the deadline, and either may act first.
func ownCause(ctx context.Context, code Code) error {
	if ctx.Err() != nil && CodeOf(ctx.Err()) == code {
		return context.Cause(ctx)
	}
	return nil
}

// outcomeOf returns what an answer means for the ranking of its server.
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

// transportError returns the error of a request whose transport has failed.
func transportError(t *transport, cause error, written bool) error {
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

// contextError returns the error of a call whose context has ended.
func contextError(ctx context.Context, processed bool) error {
	return &Error{Code: CodeOf(ctx.Err()), Processed: processed, cause: context.Cause(ctx)}
}

// noServer returns the error of a call that has waited for a first slot until ctx ended,
// with the last error of a server or of the source, if there is one.
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
			return fmt.Errorf("%w: %w (%s: %v)", ErrNoServer, ctx.Err(), peer.address, peer.failure.Error()) // its text only: it must not match
		}
	}
	if p.mu.sourceFailure != nil {
		return fmt.Errorf("%w: %w (%v)", ErrNoServer, ctx.Err(), p.mu.sourceFailure.Error())
	}
	return fmt.Errorf("%w: %w", ErrNoServer, ctx.Err())
}

// NoServerReason returns why no server grants the pool a slot, if waiting is unlikely to
// help: each server of its set is draining or does not speak Boxcar. The error matches
// ErrNoServer, and ErrDraining or ErrNotBoxcar. It is nil while the pool holds a slot,
// knows no server, or has a server that has not answered or may recover.
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

// refusal returns why a server grants no slots, if the reason is permanent. p.mu is held.
func (p *Pool) refusal(peer *poolPeer) error {
	switch {
	case p.mu.ladder.Peer(peer.index).Draining:
		return ErrDraining
	case errors.Is(peer.failure, ErrNotBoxcar):
		return peer.failure
	}
	return nil
}

// A CallInfo carries the metadata of a call and describes how it was served.
type CallInfo struct {
	// Metadata is sent with the request.
	Metadata Metadata

	// The other fields are set during the call and may be read when it has returned.

	// Header and Trailer were received with the response, also with an error; nil if there
	// were none.
	Header, Trailer Metadata
	// Server is the server of the last attempt, nil if there was none.
	Server *Peer
	// Slot is the slot of the last attempt, -1 if there was none.
	Slot int
	// Attempts is the number of times that the request was sent.
	Attempts int
}

// CallWith is Call with the metadata of info, and fills in the other fields of info. A nil
// info is allowed. info is not used after CallWith has returned.
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

// metadata returns the metadata of the request.
func (i *CallInfo) metadata() Metadata {
	if i == nil {
		return nil
	}
	return i.Metadata
}

// attempt records an attempt on a lane.
func (i *CallInfo) attempt(lane *clientLane) {
	if i != nil {
		i.Server, i.Slot, i.Header, i.Trailer = lane.transport.server, int(lane.slot), nil, nil
		i.Attempts++
	}
}

// answered records the metadata of a response.
func (i *CallInfo) answered(lane *clientLane) {
	if i != nil {
		i.Header, i.Trailer = lane.header, lane.trailer
	}
	lane.header, lane.trailer = nil, nil
}

// takeMetadata copies the metadata of a response.
func (l *clientLane) takeMetadata(header, trailer []byte) {
	l.header, l.trailer = append(Metadata(nil), header...), append(Metadata(nil), trailer...)
}

// A limited is the context of a call whose own context has no deadline: it ends after
// CallTimeout. Its timer and channel are made when the call waits for them; most answers
// arrive before. It must be used by one goroutine only.
type limited struct {
	context.Context // the context of the caller
	deadline        time.Time
	within          context.Context
	cancel          context.CancelFunc
}

var limitedPool = sync.Pool{New: func() any { return new(limited) }}

// newLimited is context.WithTimeout for one call. The context must not be used after release.
func newLimited(ctx context.Context, timeout time.Duration) *limited {
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
		return l.Context.Err() // the call has not waited yet
	}
	return l.within.Err()
}
