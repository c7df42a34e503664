package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc"
)

// callAccount is the exact record of the calls of a run, and judges how they end.
type callAccount struct {
	findings
	log *eventLog

	calls struct {
		sync.Mutex
		of map[string]*rpcCall
	}
}

func newCallAccount(log *eventLog) *callAccount {
	a := &callAccount{log: log}
	a.kinds, a.calls.of = map[string]int{}, map[string]*rpcCall{}
	return a
}

// rpcCall is a call of a front end.
type rpcCall struct {
	account *callAccount
	f       *frontend
	id      string
	method  string
	size    int    // of the response, beyond the id
	draw    uint64 // of what handlers do
	pool    *boxcarrpc.Pool

	began, deadline time.Time

	mu struct {
		sync.Mutex
		executions  []*execution
		refused     bool // a handler has not processed it
		unprocessed bool // the call has returned, and says that no handler has acted on it
	}
}

// execution is one run of a handler.
type execution struct {
	c       *rpcCall
	number  int // of the call
	p       *backendProcess
	ctx     context.Context //nolint:containedctx // of the handler
	began   time.Time
	ended   time.Time // zero: it runs
	failure error
	stopped bool // the call did not wait for it any more
}

func (a *callAccount) add(c *rpcCall) {
	a.calls.Lock()
	defer a.calls.Unlock()
	a.calls.of[c.id] = c
}

func (a *callAccount) find(id string) *rpcCall {
	a.calls.Lock()
	defer a.calls.Unlock()
	return a.calls.of[id]
}

func (a *callAccount) count() int {
	a.calls.Lock()
	defer a.calls.Unlock()
	return len(a.calls.of)
}

func (c *rpcCall) idempotent() bool { return c.method == methodGet }

// begin records that a handler of the call begins.
func (c *rpcCall) begin(ctx context.Context, p *backendProcess) *execution {
	e := &execution{c: c, p: p, ctx: ctx, began: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.mu.executions {
		switch {
		case !c.idempotent():
			c.account.wrongf("twice", "%s runs %s, which %s has run", p.b.name, c.id, other.p.b.name)
		case other.p == p && other.ended.IsZero() && other.ctx.Err() == nil && !c.f.w.disturbedSince(other.began, &p.b.machine, &c.f.machine):
			c.account.wrongf("same server", "%s runs %s, which it runs already", p.b.name, c.id)
		}
	}
	e.number = len(c.mu.executions)
	c.mu.executions = append(c.mu.executions, e)
	return e
}

// refuse records that a handler has not processed the call.
func (c *rpcCall) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.refused = true
}

// end records that the handler ends, with an error or nil.
func (e *execution) end(err error) error {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.ended, e.failure, e.stopped = time.Now(), err, e.ctx.Err() != nil
	return err
}

// message is the message of an error of the handler.
func (e *execution) message() string { return fmt.Sprintf("%s execution %d", e.c.id, e.number) }

// final reports whether the handler has ended with an answer of the call: a response, or an error
// after which the call is not sent again.
func (e *execution) final() bool {
	if e.ended.IsZero() || e.stopped {
		return false
	}
	return e.failure == nil || !e.c.idempotent() || boxcarrpc.CodeOf(e.failure) != boxcarrpc.CodeUnavailable && !errors.Is(e.failure, errPanic)
}

// appendResponse appends the response of a call.
func (c *rpcCall) appendResponse(dst []byte) []byte {
	dst = append(dst, c.id...)
	return append(dst, bytes.Repeat([]byte{byte(len(c.id))}, c.size)...)
}

const (
	// soon is the time in which an answer is expected, beyond the time of the network.
	soon = 100 * time.Millisecond
	// pastOutage is the time for which a connection may be silent after the longest outage.
	pastOutage = 3 * time.Minute
	// detected is the time in which pools detect silent servers, and try them for the last time.
	detected = 6 * time.Second
)

// ended judges the result of the call.
func (c *rpcCall) ended(response []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if late := now.Sub(c.deadline); late > soon {
		c.account.wrongf("deadline", "%s has returned %v after its deadline: %v", c.id, late, err)
	}
	for _, e := range c.mu.executions {
		if waited := now.Sub(e.ended); e.final() && waited > soon && !c.f.w.disturbedSince(e.began, &e.p.b.machine, &c.f.machine) && c.f.w.Memory == 0 {
			c.account.wrongf("late", "%s has returned %v after the answer of %s (%v): %v", c.id, waited, e.p.b.name, e.failure, err)
		}
	}
	var e *boxcarrpc.Error
	switch {
	case err == nil:
		c.account.other("answer")
		if !bytes.Equal(response, c.appendResponse(nil)) {
			c.account.wrongf("answer", "%s got the response %.100q of %d bytes", c.id, response, len(response))
		}
		return
	case errors.As(err, &e):
		c.mu.unprocessed = !e.Processed
		for _, x := range c.mu.executions {
			if !x.ended.IsZero() && x.failure != nil && (e.Message == x.message() || errors.Is(x.failure, errPanic) && e.Message == "the handler panicked") {
				c.account.other("error of a handler")
				if want := clientCode(boxcarrpc.CodeOf(x.failure)); e.Code != want {
					c.account.wrongf("code", "%s got the code %d of %s, want %d (%v)", c.id, e.Code, x.p.b.name, want, x.failure)
				}
				return
			}
		}
	default:
		c.account.wrongf("error", "%s has returned %v, which has no code", c.id, err)
	}
	if why := c.excuse(now, err); why != "" {
		c.account.other(why)
		return
	}
	c.account.wrongf("fail", "%s failed after %v: %v; %v; %d executions", c.id, now.Sub(c.began), err, c.f.state(), len(c.mu.executions))
}

// clientCode is the code that a client gets for that of a handler.
func clientCode(code boxcarrpc.Code) boxcarrpc.Code {
	if code >= 1<<16 {
		return boxcarrpc.CodeUnknown
	}
	return code
}

// excuse returns why the call may fail, or "".
func (c *rpcCall) excuse(now time.Time, err error) string {
	w, f := c.f.w, c.f
	code, stats := boxcarrpc.CodeOf(err), c.pool.Stats()
	switch {
	case f.current() != c.pool:
		return "the front end has ended"
	case !now.Before(c.deadline) && c.deadline.Sub(c.began) < callTimeout:
		return "deadline"
	case f.outage(c.began.Add(-detected)):
		return "all servers are away"
	case f.silenced(c.began.Add(-detected)), f.meetsSilent() && (!c.idempotent() || now.Sub(c.began) > boxcarrpc.DefaultMaxRetries*boxcarrpc.DefaultSilenceTimeout):
		return "silent servers"
	case w.Memory > 0:
		return "little memory"
	case c.retried():
		return "retried"
	case code == boxcarrpc.CodeDeadlineExceeded && !w.Pools.Overload:
		return ""
	case errors.Is(err, boxcarrpc.ErrPoolBusy) && (w.Pools.Overload || 2*stats.Busy >= stats.Slots || w.Pools.Errors > 0):
		return "busy"
	case code == boxcarrpc.CodeResourceExhausted && w.Pools.InFlight > 0:
		return "refused"
	case !c.idempotent() && f.changed(c.began.Add(-soon)):
		return "not idempotent"
	case errors.Is(err, boxcarrpc.ErrDraining) && f.silenced(c.began.Add(-pastOutage)):
		return "the end of the drain is in a silent connection"
	case strings.Contains(err.Error(), "the retry budget is used up"):
		return "retry budget"
	case f.lacksServers(stats) || f.halfOpen() || w.Pools.Slots > 0 && f.changed(c.began.Add(-detected)):
		return "the servers are full"
	case stats.Known == 0 && w.source.changedSince(c.began.Add(-detected)):
		return "discovery is away"
	}
	return ""
}

// retried reports whether a handler has refused the call, or failed so that it is sent again.
func (c *rpcCall) retried() bool {
	return c.mu.refused || slices.ContainsFunc(c.mu.executions, func(e *execution) bool { return !e.final() })
}

// checkExecutions verifies that no handler has acted on calls that say so.
func (a *callAccount) checkExecutions() {
	a.calls.Lock()
	defer a.calls.Unlock()
	for _, c := range a.calls.of {
		c.mu.Lock()
		if c.mu.unprocessed && len(c.mu.executions) > 0 {
			a.wrongf("processed", "%s says that it was not processed; it ran on %s", c.id, c.mu.executions[0].p.b.name)
		}
		c.mu.Unlock()
	}
}
