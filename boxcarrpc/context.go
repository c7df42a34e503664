package boxcarrpc

import (
	"context"
	"sync"
	"time"
)

// A callContext is the context of one request in a handler. It has no parent
// and no value but itself: see incoming.go. Its channel and its timer come into being only when somebody
// asks for them, because most handlers never look.
type callContext struct {
	deadline    time.Time // zero for none
	peer        *Peer
	slot        int32 // -1 of a stream
	reservation Reservation

	mu    sync.Mutex
	extra *callExtra // nil for none
	done  chan struct{}
	timer *time.Timer
	err   error
}

func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *callContext) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case reservationKey{}:
		return &c.reservation
	}
	return nil
}

func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		} else if !c.deadline.IsZero() {
			c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.cancel(context.DeadlineExceeded) })
		}
	}
	return c.done
}

func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.done == nil && c.expired(time.Now()) {
		c.err = context.DeadlineExceeded
	}
	return c.err
}

// expired reports whether the deadline has passed.
func (c *callContext) expired(now time.Time) bool {
	return !c.deadline.IsZero() && !now.Before(c.deadline)
}

// cancel ends the context; the first cause stays.
func (c *callContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelLocked(cause)
}

// end ends the context because its call has ended, and returns what goes with the
// response, nil if nothing does.
func (c *callContext) end() *callExtra {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelLocked(context.Canceled)
	return c.extra
}

func (c *callContext) cancelLocked(cause error) {
	if c.err != nil {
		return
	}
	c.err = cause
	if c.done != nil {
		close(c.done)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}
