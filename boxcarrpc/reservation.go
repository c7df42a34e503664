package boxcarrpc

import (
	"context"
	"errors"
	"sync"
)

// A large answer is one that does not fit into a frame. Smaller ones are charged when they
// are copied into a connection's outbox.
const largeAnswer = 16 << 10

// A Reservation is the memory of the answer to one request, charged to the account of its
// connection until the answer was sent.
type Reservation struct {
	account *Account

	mu struct {
		sync.Mutex
		bytes int64
	}
}

// reservationKey is the key under which a context has a *Reservation.
type reservationKey struct{}

// NewReservation returns a context in which Reserve charges the account, for a request that came
// by another protocol. Release must be called when the answer was sent.
func (a *Account) NewReservation(ctx context.Context) (context.Context, *Reservation) {
	r := &Reservation{account: a}
	return context.WithValue(ctx, reservationKey{}, r), r
}

// Reserve is called by a handler before it makes an answer of about n bytes. It waits
// while the server has no memory for the answer: see ServerOptions.Budget. A handler that has
// not acted returns the error unchanged: it is marked with NotProcessed, and another server may
// have the memory. Answers that fit into a frame need no reservation, and Reserve does
// nothing for them nor without a server's context. A larger answer that was not reserved is
// charged once it is made.
func Reserve(ctx context.Context, n int) error {
	r := reservationOf(ctx)
	if r == nil || n <= largeAnswer {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	more := int64(n) - r.mu.bytes
	if more <= 0 {
		return nil
	}
	switch err := r.account.Reserve(ctx, more); {
	case err == nil:
		r.charge(more)
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		return NotProcessed(&Error{Code: CodeResourceExhausted, Message: "the server has no memory for the answer", cause: err})
	}
}

// Hold charges an answer with its real size, after Reserve with an estimate. Servers of this
// package call it themselves.
func Hold(ctx context.Context, bytes int) {
	if r := reservationOf(ctx); r != nil {
		r.Fit(bytes)
	}
}

func reservationOf(ctx context.Context) *Reservation {
	r, _ := ctx.Value(reservationKey{}).(*Reservation)
	return r
}

// HasReservation reports whether Reserve reserves with this context.
func HasReservation(ctx context.Context) bool { return reservationOf(ctx) != nil }

// TryReserve is Reserve without waiting. It reports whether there is memory.
func TryReserve(ctx context.Context, n int) bool {
	r := reservationOf(ctx)
	if r == nil || n <= largeAnswer {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	more := int64(n) - r.mu.bytes
	if more > 0 && !r.account.TryReserve(more) {
		return false
	}
	if more > 0 {
		r.charge(more)
	}
	return true
}

// charge adds bytes that were charged to the account.
func (r *Reservation) charge(n int64) {
	r.mu.bytes += n
	r.account.budget.messages.Add(n)
}

// Fit makes the room that of an answer as it was made, whether reserved or not.
func (r *Reservation) Fit(bytes int) { r.fit(bytes, bytes) }

// fit charges the capacity of an answer that is large.
func (r *Reservation) fit(size, capacity int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size <= largeAnswer {
		capacity = 0
	}
	if more := int64(capacity) - r.mu.bytes; more != 0 {
		r.account.change(more)
		r.charge(more)
	}
}

// Release gives the room up. It may be called more than once.
func (r *Reservation) Release() { r.fit(0, 0) }
