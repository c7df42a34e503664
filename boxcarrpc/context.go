package boxcarrpc

import (
	"context"
	"errors"
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

// What the context of a handler, or one made of it, knows of the call.

// callKey is the key under which a callContext finds itself.
type callKey struct{}

func callOf(ctx context.Context) *callContext {
	c, _ := ctx.Value(callKey{}).(*callContext)
	return c
}

// PeerOf returns the client whose request or stream ctx is of; nil if ctx is not a
// handler's.
func PeerOf(ctx context.Context) *Peer {
	if c := callOf(ctx); c != nil {
		return c.peer
	}
	return nil
}

// MetadataOf returns what came with the request or the opening of the stream; nil
// if nothing did. It must not be changed; it may be kept.
func MetadataOf(ctx context.Context) Metadata {
	c := callOf(ctx)
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil {
		return nil
	}
	return c.extra.metadata
}

// SlotOf returns the slot on which the request came; -1 for a stream, which has
// none, and if ctx is not a handler's.
func SlotOf(ctx context.Context) int {
	if c := callOf(ctx); c != nil {
		return int(c.slot)
	}
	return -1
}

var errNotUnary = errors.New("boxcarrpc: the context is not that of a request; a stream sends metadata itself")

// SetHeader and SetTrailer set what goes with the response to the request that ctx
// is of, an error among them; the last call counts. Header and trailer are together
// at most MaxMetadataBytes. Their difference is between the programs: both go with
// the response. What is set after the handler has returned is lost. The bytes must
// not be changed. A stream has methods of its own for them.
func SetHeader(ctx context.Context, header Metadata) error {
	return setAnswer(ctx, func(e *callExtra) { e.header = header })
}

// SetTrailer sets the trailer: see SetHeader.
func SetTrailer(ctx context.Context, trailer Metadata) error {
	return setAnswer(ctx, func(e *callExtra) { e.trailer = trailer })
}

func setAnswer(ctx context.Context, set func(*callExtra)) error {
	c := callOf(ctx)
	if c == nil || c.slot < 0 {
		return errNotUnary
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var e callExtra
	if c.extra != nil {
		e = *c.extra
	}
	set(&e)
	for _, m := range []Metadata{e.header, e.trailer} {
		if err := m.check(); err != nil {
			return err
		}
	}
	if n := len(e.header) + len(e.trailer); n > MaxMetadataBytes {
		return tooLong("header and trailer", n, MaxMetadataBytes)
	}
	c.extra = &e
	return nil
}

// A callExtra is what few calls have.
type callExtra struct {
	metadata, header, trailer Metadata
}
