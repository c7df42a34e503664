package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
// no slot, Call waits within ctx for the first one, and then fails with ErrNoServer. It does
// not wait if the source lists no server, and at most until 250 ms after the last server has
// become unreachable or draining; WaitReady does. A
// request that certainly was not processed, or any request of an idempotent method, is sent
// again on the best slot of a server that this call has not tried, at most MaxRetries times
// and within the pool's retry budget. Any other failure is an *Error: see [Error].
func (p *Pool) Call(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	return p.CallWith(ctx, method, request, dst, nil)
}

// CallWith is Call with the first fields of info, and fills in the others. A nil info is
// allowed. info is not used after CallWith has returned.
func (p *Pool) CallWith(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	if p.caller != nil {
		return p.intercepted(ctx, method, request, dst, info)
	}
	return p.calls.call(ctx, method, request, dst, info)
}

// A CallInfo carries the metadata of a call and describes how it was served.
type CallInfo struct {
	// Metadata is sent with the request.
	Metadata Metadata
	// Hedge replaces the method's HedgeAfter if it is not nil. The method must be Idempotent.
	Hedge *CallHedge
	// Avoid has servers that have not answered the same request before: Server of earlier calls
	// of the pool. Others are asked if there are any, as for a retry, and without the retry
	// budget.
	Avoid []*Peer

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

// CallHedge says when a call is also sent to a second server.
type CallHedge struct {
	// After is the time without an answer, as Method.HedgeAfter.
	After time.Duration
	// Allow decides instead of the retry budget of the pool, so that the pools of a client
	// share a budget. It is called at most once, by another goroutine.
	Allow func() bool
}

// input returns a CallInfo with the fields that the caller sets.
func (i *CallInfo) input() CallInfo {
	return CallInfo{Metadata: i.Metadata, Hedge: i.Hedge, Avoid: i.Avoid, Slot: -1}
}

// attempt records an attempt on a lane.
func (i *CallInfo) attempt(lane *clientLane) {
	i.Server, i.Slot, i.Header, i.Trailer = lane.transport.server, int(lane.slot), nil, nil
	i.Attempts++
}

// calls makes the attempts of calls: each takes a slot, sends the request on its lane and
// returns the slot. It has no state but counters.
type calls struct {
	options *PoolOptions
	slots   *slots
	members *members
	sweeper cancelSweeper
	counts  struct {
		calls, failed, retries, hedges, hedgesWon atomic.Uint64
	}
}

func (c *calls) init(o *PoolOptions, s *slots, m *members) {
	c.options, c.slots, c.members = o, s, m
	c.sweeper.init(m)
}

// A call holds what all attempts of a call share.
type call struct {
	method   string
	request  []byte
	metadata Metadata
	rule     Method
	deadline time.Time  // with a monotonic clock reading; zero for none
	timeout  bool       // the deadline is that of CallTimeout, not of the context
	info     *CallInfo  // may be nil
	hedging  *CallHedge // nil: that of the rule
	avoid    []*Peer
	// hedgeAfter is the time after which there is a second attempt; 0: never.
	hedgeAfter time.Duration
	hedge      *hedge // the second attempt, nil until it is planned
	hedges     bool   // this is the second attempt
	answered   bool   // the last attempt ended with an answer: see isAnswer
}

// context returns a context that also ends at the deadline, and when another attempt has an
// answer.
func (r *call) context(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case r.hedge != nil:
		return r.hedge.shared, func() {}
	case r.timeout:
		return context.WithDeadline(ctx, r.deadline)
	}
	return ctx, func() {}
}

// appendAvoided appends the indexes of the servers to avoid.
func (r *call) appendAvoided(to []int32) []int32 {
	for _, server := range r.avoid {
		if server != nil {
			to = append(to, server.index)
		}
	}
	return to
}

// call is Pool.CallWith without interceptors.
func (c *calls) call(ctx context.Context, method string, request, dst []byte, info *CallInfo) (out []byte, err error) {
	r := call{method: method, request: request, rule: c.options.Methods[method], info: info}
	if info != nil {
		*info = info.input()
		r.metadata, r.hedging, r.avoid = info.Metadata, info.Hedge, info.Avoid
		if err := info.Metadata.check(); err != nil {
			return dst, err
		}
	}
	if ctx.Value(batchKey{}) == true { // IsBatch
		r.metadata = r.metadata.withBatch()
	}
	c.counts.calls.Add(1)
	now := c.slots.now()
	deadline, limited := ctx.Deadline()
	switch {
	case limited:
		r.deadline = monotonic(deadline)
	case c.options.CallTimeout > 0:
		r.deadline, r.timeout = c.slots.start.Add(time.Duration(now)+c.options.CallTimeout), true
	}
	switch {
	case len(method) > MaxMethodBytes || len(request) > MaxRequestBytes:
		err = &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf(
			"request of %d bytes to a method of %d: at most %d and %d are allowed",
			len(request), len(method), MaxRequestBytes, MaxMethodBytes)}
	case r.hedging != nil && r.rule.Idempotent:
		r.hedgeAfter = r.hedging.After
		out, err = c.attempts(ctx, now, &r, dst)
	default:
		r.hedgeAfter = r.rule.HedgeAfter
		out, err = c.attempts(ctx, now, &r, dst)
	}
	if r.hedge != nil {
		out, err = c.endHedge(&r, dst, out, err)
	}
	if err != nil {
		c.counts.failed.Add(1)
		return dst, err
	}
	return out, nil
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

// attempts sends a request, for the first time now, until it is answered or must not be sent again.
func (c *calls) attempts(ctx context.Context, now int64, r *call, dst []byte) ([]byte, error) {
	var (
		few   [4]int32
		tried = few[:0] // indexes of servers
		last  error
	)
	if len(r.avoid) > 0 {
		tried = r.appendAvoided(tried)
	}
	for n := 0; ; n++ {
		var lane *clientLane
		var w *waiter
		var err error
		if r.hedge == nil {
			if n > 0 {
				now = c.slots.now()
			}
			lane, w, err = c.slots.acquire(now, tried, n > 0)
		} else if lane, err = c.acquireRetry(r, tried); lane == nil && err == nil {
			return dst, last
		}
		if lane == nil {
			lane, err = c.waitForSlot(ctx, r, w, err)
		}
		if err != nil {
			return dst, retrySlotError(last, err)
		}
		if n > 0 {
			c.counts.retries.Add(1)
		}
		peer := lane.transport.peer.index
		out, again, err := c.exchange(ctx, lane, r, dst)
		if r.hedge != nil {
			r.answered = isAnswer(again, err)
		}
		if err == nil {
			return out, nil
		}
		err = mergeAttemptErrors(last, err)
		if r.hedge != nil {
			ctx = r.hedge.shared
		}
		if !again || n >= c.options.MaxRetries || ctx.Err() != nil {
			return dst, err
		}
		tried, last = append(tried, peer), err
	}
}

// waitForSlot waits within the context and the deadline of a call, if slots.acquire returned
// a waiter; otherwise err is its error.
func (c *calls) waitForSlot(ctx context.Context, r *call, w *waiter, err error) (lane *clientLane, _ error) {
	if w != nil {
		var cancel context.CancelFunc
		ctx, cancel = r.context(ctx)
		defer cancel()
		lane, err = c.slots.wait(ctx, w)
	}
	if errors.Is(err, errNoSlot) {
		err = c.members.noServer(ctx)
	}
	return lane, err
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

// exchange sends a request on a lane and waits for the response. again reports whether
// another server may be tried.
func (c *calls) exchange(ctx context.Context, lane *clientLane, r *call, dst []byte) (out []byte, again bool, err error) {
	t := lane.transport
	if ctx.Err() != nil {
		c.slots.release(c.slots.now(), lane, noAnswer, false)
		return dst, false, contextError(ctx, false)
	}
	if limit := t.hello.MaxRequest; uint64(len(r.request)) > uint64(limit) {
		c.slots.release(c.slots.now(), lane, noAnswer, false)
		return dst, false, tooLongForServer(t, len(r.request))
	}
	alone := r.hedgeAfter == 0 && !r.hedges && (r.deadline.IsZero() || r.deadline.Sub(c.slots.start)-time.Duration(lane.picked) > nearDeadline)
	if r.info != nil {
		r.info.attempt(lane)
	}
	reads, err := lane.send(r.method, r.metadata, r.request, dst, r.deadline, alone)
	if err != nil {
		c.members.removeTransport(t, err) // before the failing goroutine does, so that no other attempt uses the transport
		return dst, !errors.Is(err, ErrPoolClosed), transportError(t, err, false)
	}
	if c.members.livenessCheckSlow.Load() {
		c.members.noteSend()
	}
	switch {
	case reads && (r.hedges || r.hedge != nil):
		t.turn.pass <- struct{}{} // the caller must notice the answer of the other attempt at once
	case reads:
		t.readFor(lane, r.deadline, r.hedgeAfter)
	}
	if err := c.await(ctx, r, lane, alone); err != nil {
		return dst, false, err
	}
	if r.info != nil {
		r.info.Header, r.info.Trailer = lane.header, lane.trailer
	}
	lane.header, lane.trailer = nil, nil
	if lane.failure != nil {
		written := t.out.Reached(lane.ticket)
		err = transportError(t, lane.failure, written)
		lane.dropData()
		return dst, (!written || r.rule.Idempotent) && !errors.Is(err, ErrPoolClosed), err
	}
	return c.conclude(ctx, lane, r.rule.Idempotent, dst)
}

// await waits for the end of a request: for the answer only at first if alone is set. If
// the context or the deadline ends first, it abandons the call.
func (c *calls) await(ctx context.Context, r *call, lane *clientLane, alone bool) error {
	switch {
	case alone:
		if len(lane.events) == 0 {
			c.sweeper.start()
		}
		if <-lane.events == ended {
			return nil
		}
	case len(lane.events) > 0:
		<-lane.events // the caller has read it
		return nil
	case r.hedgeAfter > 0 && r.hedge == nil:
		c.planHedge(ctx, r, lane)
	}
	ctx, cancel := r.context(ctx)
	defer cancel()
	select {
	case <-lane.events: // watchContext came before
		return nil
	case <-ctx.Done():
	}
	if lane.abandon() {
		<-lane.events
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		// The slot is busy until the server answers.
		c.slots.recordOutcome(lane.transport.peer.index, core.Failure)
	}
	return contextError(ctx, true) // unsent bytes may still be sent
}

// check sends a health check on a lane.
func (c *calls) check(lane *clientLane) {
	peer := lane.transport.peer
	ctx, cancel := context.WithTimeout(c.members.ctx, c.options.SilenceTimeout)
	defer cancel()
	r := call{method: c.options.HealthMethod}
	r.deadline, _ = ctx.Deadline()
	_, _, err := c.exchange(ctx, lane, &r, nil)
	if err != nil && c.members.ctx.Err() == nil {
		c.options.Logger.Info("health check failed", "server", peer.address, "error", err)
	}
	c.slots.update(func(now int64, l *core.Client, rng *rand.PCG) { l.Checked(now, peer.index, err == nil, rng) })
	c.members.step()
}

func tooLongForServer(t *transport, n int) error {
	return &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf("request of %d bytes: server %s accepts at most %d", n, t.peer.address, t.hello.MaxRequest)}
}

// conclude takes the response from a lane and releases the lane.
func (c *calls) conclude(ctx context.Context, lane *clientLane, idempotent bool, dst []byte) (out []byte, again bool, err error) {
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
	response := core.Response{Outcome: outcome, Load: int32(lane.response.Load), Lowest: int32(lane.response.Lowest)}
	if lane.dst = nil; lane.charged > 0 {
		lane.dropData()
	}
	c.slots.release(lane.answered, lane, response, slotLost)
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

// Interceptors wrap calls and streams, for tasks that concern all methods: traces, metrics,
// logs, checks. On the server they map a handler to a handler and see everything that
// reaches a handler, including the built-in methods. On the client they map a Caller to a
// Caller and a StreamOpener to a StreamOpener, and see a call once, however many attempts
// it takes.
//
// They are chained once, when the server or the pool is made. Without interceptors no extra
// function is called.

// A Caller makes a call: [Pool.CallWith] without interceptors is the innermost one. An
// interceptor always gets an info that is not nil. Metadata that it adds is sent, but is
// not visible in the caller's CallInfo. info is valid until the Caller returns.
type Caller func(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error)

// chain wraps inner in interceptors, the first outermost.
func chain[T any](inner T, interceptors []func(T) T) T {
	for i := len(interceptors) - 1; i >= 0; i-- {
		inner = interceptors[i](inner)
	}
	return inner
}

// infos holds *CallInfo for the calls of pools with interceptors.
var infos sync.Pool

// intercepted makes a call through the interceptors.
func (p *Pool) intercepted(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	own, ok := infos.Get().(*CallInfo)
	if !ok {
		own = new(CallInfo)
	}
	*own = CallInfo{Slot: -1}
	if info != nil {
		*own = info.input()
	}
	out, err := p.caller(ctx, method, request, dst, own)
	if info != nil {
		own.Metadata = info.Metadata
		*info = *own
	}
	*own = CallInfo{}
	infos.Put(own)
	if err != nil {
		return dst, err
	}
	return out, nil
}
