package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errSent is the reason why nothing is reserved for a response that was sent: a goroutine of the
// handler has outlived it.
var errSent = errors.New("budget: the response was sent")

// errReservationClosed is returned by a reservation whose connection has ended.
var errReservationClosed = errors.New("budget: the connection ended while it waited for memory")

// maxReservationWait is the maximum wait of a reservation. The memory may be held by responses
// of the same connection, which is not disconnected for its own reservations.
const maxReservationWait = 10 * time.Second

var errReservationTimeout = fmt.Errorf("budget: no memory within %s: other responses to the client, or the budget, use it up", maxReservationWait)

// A reservationWait is a reservation that waits. It is guarded by the budget's mutex.
type reservationWait struct {
	account *Account
	grows   *Reservation // a response that has bytes already; nil: it is the first reservation
	bytes   int64
	done    chan struct{} // closed when it is granted or has failed
	err     error
}

// Reserve charges n bytes that are about to be allocated. It waits while the client holds
// its share or the budget is used up, and fails when ctx ends, when the connection is closed
// and after maxReservationWait.
// The reservations of a client are granted in the order of their arrival. The last
// reservation may exceed the budget, so that a message of any size is possible.
func (a *Account) Reserve(ctx context.Context, n int64) error { return a.reserve(ctx, nil, n) }

// reserve reserves n bytes, more for a response that grows if that is not nil.
func (a *Account) reserve(ctx context.Context, grows *Reservation, n int64) error {
	b := a.budget
	b.mu.Lock()
	ok, err := a.reserveLocked(grows, n)
	if ok || err != nil {
		b.mu.Unlock()
		return err
	}
	w := &reservationWait{account: a, grows: grows, bytes: n, done: make(chan struct{})}
	c := a.client.Load()
	c.waitLocked(w)
	b.mu.waiting[c] = struct{}{}
	if b.mu.timer == nil {
		b.mu.timer = time.AfterFunc(patience/4, b.disconnectSlow)
	}
	var slow []*Account
	if len(c.waiting) == 1 {
		slow = b.slowLocked(time.Now(), a)
	}
	b.mu.Unlock()
	disconnect(slow)
	timer := time.NewTimer(maxReservationWait)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	case <-timer.C:
	}
	b.mu.Lock()
	select {
	case <-w.done: // meanwhile
		err = w.err
	default:
		if err = context.Cause(ctx); err == nil {
			err = errReservationTimeout
		}
		i := slices.Index(c.waiting, w)
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.forgetWaitingLocked(b)
	}
	b.mu.Unlock()
	return err
}

// TryReserve is Reserve without waiting. It reports whether the bytes were reserved.
func (a *Account) TryReserve(n int64) bool { return a.tryReserve(nil, n) }

// tryReserve is reserve without waiting.
func (a *Account) tryReserve(grows *Reservation, n int64) bool {
	b := a.budget
	b.mu.Lock()
	ok, err := a.reserveLocked(grows, n)
	var slow []*Account
	if !ok && err == nil {
		slow = b.slowLocked(time.Now(), a)
	}
	b.mu.Unlock()
	disconnect(slow)
	return ok
}

// reserveLocked reserves n bytes if there is room, as reserve does.
func (a *Account) reserveLocked(grows *Reservation, n int64) (ok bool, err error) {
	if a.closed || a.ending {
		return false, errReservationClosed
	}
	if grows == nil && len(a.client.Load().waiting) > 0 || !a.takeRoomLocked(grows) {
		return false, nil
	}
	a.used.Add(n)
	a.budget.settleLocked(a)
	return true, nil
}

// takeRoomLocked reports whether bytes may be reserved: the client holds less than its share, and all
// clients less than the budget. One response of a client that grows may exceed its share, and one of all
// the budget, until they are sent: so those that grow do not all wait for each other.
func (a *Account) takeRoomLocked(grows *Reservation) bool {
	b, c := a.budget, a.client.Load()
	overShare, overBudget := c.used >= b.share, b.mu.used >= b.limit
	switch {
	case !overShare && !overBudget:
		return true
	case grows == nil:
		return false
	case b.mu.exceeds == grows:
		return true
	case overShare && c.exceeds != nil && c.exceeds != grows, overBudget && b.mu.exceeds != nil:
		return false
	}
	if overShare {
		c.exceeds = grows
	}
	if overBudget {
		b.mu.exceeds = grows
	}
	grows.exceeds = true
	return true
}

// endExceeding lets another response exceed the share or the budget, if r did.
func (r *Reservation) endExceeding() {
	if !r.exceeds {
		return
	}
	r.exceeds = false
	b, c := r.Account.budget, r.Account.client.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.exceeds == r {
		c.exceeds = nil
	}
	if b.mu.exceeds == r {
		b.mu.exceeds = nil
	}
	b.grantReservationsLocked()
}

// waitLocked adds a reservation. Those of responses that grow are before the first ones of others.
func (c *clientMemory) waitLocked(w *reservationWait) {
	i := len(c.waiting)
	if first := slices.IndexFunc(c.waiting, func(x *reservationWait) bool { return x.grows == nil }); w.grows != nil && first >= 0 {
		i = first
	}
	c.waiting = slices.Insert(c.waiting, i, w)
}

// nextLocked returns the index of the reservation to be granted, -1 if there is none.
func (c *clientMemory) nextLocked() int {
	for i, w := range c.waiting {
		if w.account.takeRoomLocked(w.grows) {
			return i
		}
		if w.grows == nil {
			break // others have no room either
		}
	}
	return -1
}

// grantReservationsLocked grants the reservations for which there is memory.
func (b *Budget) grantReservationsLocked() {
	for c := range b.mu.waiting {
		for i := c.nextLocked(); i >= 0; i = c.nextLocked() {
			w := c.waiting[i]
			c.waiting = slices.Delete(c.waiting, i, i+1)
			if w.account.ending {
				w.err = errReservationClosed
			} else {
				w.account.used.Add(w.bytes)
				b.settleCreditLocked(w.account)
			}
			close(w.done)
		}
		c.forgetWaitingLocked(b)
	}
}

// failReservationsLocked ends the waiting reservations of an account.
func (a *Account) failReservationsLocked() {
	c := a.client.Load()
	c.waiting = slices.DeleteFunc(c.waiting, func(w *reservationWait) bool {
		if w.account != a {
			return false
		}
		w.err = errReservationClosed
		close(w.done)
		return true
	})
	c.forgetWaitingLocked(a.budget)
}

// forgetWaitingLocked records that no reservation of the client waits, if so.
func (c *clientMemory) forgetWaitingLocked(b *Budget) {
	if len(c.waiting) == 0 {
		c.waiting = nil
		delete(b.mu.waiting, c)
	}
}

// disconnectSlow disconnects slow peers while reservations wait: a peer becomes slow
// without an event.
func (b *Budget) disconnectSlow() {
	var slow []*Account
	b.mu.Lock()
	for c := range b.mu.waiting {
		first := c.waiting[0].account
		slow = append(slow, b.slowLocked(time.Now(), first)...)
		// The connection that waits is not disconnected for itself, but for another one.
		if i := slices.IndexFunc(c.waiting, func(w *reservationWait) bool { return w.account != first }); i >= 0 {
			slow = append(slow, b.slowLocked(time.Now(), c.waiting[i].account)...)
		}
	}
	if len(b.mu.waiting) > 0 {
		b.mu.timer.Reset(patience / 4)
	} else {
		b.mu.timer = nil
	}
	b.mu.Unlock()
	disconnect(slow)
}

// A large response does not fit into one frame. Smaller ones are charged when they are
// copied into the outbox of their connection.
const largeAnswer = 16 << 10

// A Reservation is the memory for the response to one request. It is charged to the account
// of the connection until the response was sent.
type Reservation struct {
	Account *Account // of the connection; it must not change

	// The bytes, or released. Reserve and Fit hold mu when they change them. Release does not if
	// there are none, which is usual: the calls of a server would lock and unlock mu twice each.
	mu    sync.Mutex
	bytes atomic.Int64

	exceeds bool // see takeRoomLocked; guarded by mu, which Reserve holds while it waits
}

// released instead of the bytes says that the response was sent, and nothing is charged for it.
const released = -1

// ReservationKey is the key of the *Reservation of a request in its context.
type ReservationKey struct{}

// NewReservation returns a context in which Reserve charges the account, for a request of
// another protocol. The caller must call Release when the response was sent.
func (a *Account) NewReservation(ctx context.Context) (context.Context, *Reservation) {
	r := &Reservation{Account: a}
	return context.WithValue(ctx, ReservationKey{}, r), r
}

// Reserve reserves memory for a response of about n bytes. A handler calls it before it
// allocates the response. It waits while the server has no memory, and then returns an
// error of the context or a *NoMemoryError. A handler that has changed nothing returns the
// error unchanged: a server of Boxcar then tells the client to try another server.
//
// A handler may call it again for a larger n when it knows more. Of the responses that grow, one of each
// client need not wait, so that they do not wait for each other.
//
// Reserve does nothing for a response that fits into one frame, and without a server's
// context. A larger response that was not reserved is charged once it exists.
func Reserve(ctx context.Context, n int) error {
	r := reservationOf(ctx)
	if r == nil || n <= largeAnswer {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.bytes.Load()
	more := int64(n) - before
	if more <= 0 {
		return nil
	}
	if before == released {
		return &NoMemoryError{cause: errSent}
	}
	switch err := r.Account.reserve(ctx, r.grows(before), more); {
	case err == nil && r.charge(before, more):
		return nil
	case err == nil:
		return &NoMemoryError{cause: errSent}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		return &NoMemoryError{cause: err}
	}
}

// A NoMemoryError is the error of Reserve if the server has no memory for a response.
type NoMemoryError struct{ cause error }

func (e *NoMemoryError) Error() string { return "the server has no memory for the response" }

// Unwrap returns the reason: the end of the connection or of the patience of Reserve.
func (e *NoMemoryError) Unwrap() error { return e.cause }

// Hold changes the reservation of a response, which is an estimate, to the actual size. It
// does nothing without a server's context. Servers of Boxcar do this themselves.
func Hold(ctx context.Context, bytes int) {
	if r := reservationOf(ctx); r != nil {
		r.Fit(bytes, bytes)
	}
}

func reservationOf(ctx context.Context) *Reservation {
	r, _ := ctx.Value(ReservationKey{}).(*Reservation)
	return r
}

// ShareOf returns the bytes that the client of the request may hold, the largest int64 without the context of
// a server.
func ShareOf(ctx context.Context) int64 {
	if r := reservationOf(ctx); r != nil {
		return r.Account.Share()
	}
	return math.MaxInt64
}

// HasReservation reports whether Reserve has an effect with this context.
func HasReservation(ctx context.Context) bool { return reservationOf(ctx) != nil }

// TryReserve is Reserve without waiting. It reports whether the memory was reserved.
func TryReserve(ctx context.Context, n int) bool {
	r := reservationOf(ctx)
	if r == nil || n <= largeAnswer {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.bytes.Load()
	more := int64(n) - before
	switch {
	case more <= 0:
		return true
	case before == released:
		return false
	}
	return r.Account.tryReserve(r.grows(before), more) && r.charge(before, more)
}

// grows returns r if the response has bytes already.
func (r *Reservation) grows(before int64) *Reservation {
	if before > 0 {
		return r
	}
	return nil
}

// charge records more bytes that were charged to the account. If the response was sent meanwhile,
// it releases them and returns false. mu is held.
func (r *Reservation) charge(before, more int64) bool {
	if !r.bytes.CompareAndSwap(before, before+more) {
		r.Account.Release(more)
		return false
	}
	r.Account.budget.messages.Add(more)
	return true
}

// Fit changes the reservation to the capacity of a response of that size. A response that
// fits into one frame needs none.
func (r *Reservation) Fit(size, capacity int) {
	if size <= largeAnswer {
		capacity = 0
		if r.bytes.Load() == 0 {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.bytes.Load()
	more := int64(capacity) - before
	if before == released || more == 0 {
		return
	}
	r.Account.Change(more)
	if r.charge(before, more) && capacity == 0 {
		r.endExceeding()
	}
}

// Release ends the reservation: nothing is reserved after it. It is idempotent.
func (r *Reservation) Release() {
	if r.bytes.CompareAndSwap(0, released) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if held := r.bytes.Swap(released); held > 0 {
		r.endExceeding()
		r.Account.Release(held)
		r.Account.budget.messages.Add(-held)
	}
}
