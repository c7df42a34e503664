package boxcarrpc

import (
	"context"
	"errors"
	"sync"
	"time"

	"docstore/boxcarrpc/budget"
)

// A callContext is the context of one request in a handler. It has no parent, and no values
// but those of this package. Its channel and timer are made when they are first used,
// because most handlers never use them.
type callContext struct {
	deadline    time.Time // zero for none
	peer        *Peer
	slot        int32 // -1 for a stream
	batch       bool
	reservation budget.Reservation

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
	case budget.ReservationKey{}:
		return &c.reservation
	case batchKey{}:
		return c.batch
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

// cancel ends the context. The first cause is kept.
func (c *callContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelLocked(cause)
}

// end ends the context because its call has ended, and returns the metadata of the
// response, nil if there is none.
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

// callKey is the context key of the *callContext.
type callKey struct{}

func callOf(ctx context.Context) *callContext {
	c, _ := ctx.Value(callKey{}).(*callContext)
	return c
}

// PeerOf returns the client of the request or stream of ctx, nil if ctx is not that of a
// handler.
func PeerOf(ctx context.Context) *Peer {
	if c := callOf(ctx); c != nil {
		return c.peer
	}
	return nil
}

// MetadataOf returns the metadata of the request or of the opened stream of ctx, nil if
// there is none. It must not be changed; it may be kept.
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

// SlotOf returns the slot of the request of ctx; -1 for a stream, which has no slot, and if
// ctx is not that of a handler.
func SlotOf(ctx context.Context) int {
	if c := callOf(ctx); c != nil {
		return int(c.slot)
	}
	return -1
}

var errNotUnary = errors.New("boxcarrpc: the context is not that of a request; for a stream use its SendHeader and SetTrailer")

// SetHeader sets the header that is sent with the response, also with an error; the last
// call counts. Header and trailer have at most MaxMetadataBytes together. Both are sent
// with the response; they differ only in their meaning to the programs. Changes after the
// handler has returned are lost. header must not be modified after the call. It fails for a
// stream: see ServerStream.SendHeader.
func SetHeader(ctx context.Context, header Metadata) error {
	return setAnswer(ctx, func(e *callExtra) { e.header = header })
}

// SetTrailer sets the trailer: see [SetHeader].
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

// A callExtra holds the metadata of a call. Few calls have any.
type callExtra struct {
	metadata, header, trailer Metadata
}
