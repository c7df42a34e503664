package budget

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// An account takes credit from its budget in chunks, so that the budget's lock is taken
	// once per chunk and not per message.
	chunkBytes = 64 << 10
	// The first bytes of each account need no credit: most connections hold less and never
	// take the budget's lock.
	freeBytes = 16 << 10
	// A client may hold this fraction of the budget, so that one client cannot use it up.
	clientFraction = 8
	// A peer that transfers less than one chunk in this time is slow. When memory runs
	// short, the peer that has been slow for longest is disconnected.
	patience = time.Second
)

// MaxMessageBytes is the size of the largest message of the protocols that share a budget. The
// budget may be exceeded by one such message, so that it can be finished. Above that the
// slowest peer is disconnected at once.
const MaxMessageBytes = 32 << 20

// A Budget limits the memory of the messages of all peers of a process: bytes received and
// not yet handled, and bytes that wait to be sent. Servers of several protocols may share
// one Budget. Its methods may be called concurrently.
//
// Each connection has an Account. A charge always succeeds, because the bytes exist
// already. A reservation, for bytes that are about to be allocated, waits while the client
// holds its share or the budget is used up. When the budget is exceeded, the peers that are
// slowest to transfer their bytes are disconnected.
//
// A Budget also shares the processor time among the clients: see processors.go.
type Budget struct {
	limit, share int64
	messages     atomic.Int64 // exact bytes of large requests, responses and streams, for statistics
	tight        atomic.Bool  // more than half is used: idle connections free their buffers
	processors   processorTime

	mu struct {
		sync.Mutex
		used    int64 // credit of all accounts
		ending  int64 // of these, credit of accounts whose connections are being closed
		cut     uint64
		clients map[Client]*clientMemory
		waiting map[*clientMemory]struct{} // clients with reservations that wait
		exceeds *Reservation               // the response that may exceed the budget; nil: another one may
		timer   *time.Timer                // disconnects slow peers while reservations wait; nil if none does
	}
}

// A clientMemory is the state of one client. It is guarded by the budget's mutex; tight is
// also read without it.
type clientMemory struct {
	used     int64
	tight    atomic.Bool           // more than three quarters of the share are used
	accounts int                   // number of open accounts
	holders  map[*Account]struct{} // accounts that have credit
	waiting  []*reservationWait    // those of responses that grow first, then in the order of their arrival
	exceeds  *Reservation          // the response that may exceed the share; nil: another one may
}

// An Account counts the bytes that the process holds for one connection. A nil Account counts
// nothing: Charge, Release, Change, Tight, Await and Moved do nothing for it.
type Account struct {
	budget *Budget
	cut    func()

	used   atomic.Int64
	credit atomic.Int64 // written under budget.mu

	waiting atomic.Int64 // bytes that the peer has yet to read, or has begun to send
	moved   atomic.Int64 // of these, transferred since `since`
	since   atomic.Int64 // when the peer last transferred a chunk, in Unix nanoseconds; 0: nothing waits

	time atomic.Pointer[clientTime] // of the client

	client atomic.Pointer[clientMemory] // written under budget.mu

	// Guarded by budget.mu.
	key    Client
	ending bool // the connection is being closed
	closed bool
	left   bool // closed and without credit: it belongs to no client
}

// Stats are a budget's counters at one moment.
type Stats struct {
	Limit        int64
	Messages     int64  // bytes that Account.CountMessages has counted
	Used         int64  // bytes, in chunks of 64 KiB
	Disconnected uint64 // peers disconnected because the budget was exceeded
}

// New returns a budget of that many bytes. A client may hold an eighth of it.
func New(bytes int64) *Budget {
	b := &Budget{limit: bytes, share: max(bytes/clientFraction, chunkBytes)}
	b.mu.clients, b.mu.waiting = make(map[Client]*clientMemory), make(map[*clientMemory]struct{})
	b.processors.init()
	return b
}

// Stats returns the budget's counters.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Limit: b.limit, Messages: b.messages.Load(), Used: b.mu.used, Disconnected: b.mu.cut}
}

// Open opens an account for a connection of a client. disconnect must close the connection
// without blocking; it is called at most once, by any goroutine, possibly with the caller's
// locks held.
func (b *Budget) Open(client Client, disconnect func()) *Account {
	a := &Account{budget: b, cut: disconnect}
	a.credit.Store(freeBytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joinLocked(a, client)
	return a
}

// Identify moves the account to the client that the peer has authenticated as.
func (a *Account) Identify(key Client) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if key == a.key || a.closed {
		return
	}
	credit := a.credit.Load() - freeBytes
	a.failReservationsLocked()
	if c := a.client.Load(); c.exceeds != nil && c.exceeds.Account == a {
		c.exceeds = nil
	}
	b.leaveLocked(a, credit)
	b.joinLocked(a, key)
	b.useLocked(a.client.Load(), credit)
	if credit > 0 {
		a.client.Load().holders[a] = struct{}{}
	}
}

func (b *Budget) joinLocked(a *Account, key Client) {
	c := b.mu.clients[key]
	if c == nil {
		c = &clientMemory{holders: make(map[*Account]struct{})}
		b.mu.clients[key] = c
	}
	c.accounts++
	a.key = key
	a.client.Store(c)
	b.processors.join(a, key)
}

// leaveLocked removes an account, with its credit, from its client.
func (b *Budget) leaveLocked(a *Account, credit int64) {
	c := a.client.Load()
	b.useLocked(c, -credit)
	delete(c.holders, a)
	if c.accounts--; c.accounts == 0 {
		delete(b.mu.clients, a.key)
	}
	b.processors.leave(a, a.key)
}

// Charge adds n bytes that the process holds for the peer.
func (a *Account) Charge(n int64) {
	if a != nil && a.used.Add(n) > a.credit.Load() {
		a.settle()
	}
}

// Change charges n bytes, or releases -n bytes if n is negative.
func (a *Account) Change(n int64) {
	if n >= 0 {
		a.Charge(n)
	} else {
		a.Release(-n)
	}
}

// CountMessages adds n, which may be negative, to the bytes of large messages in Stats. It
// does not charge them.
func (a *Account) CountMessages(n int64) { a.budget.messages.Add(n) }

// Share returns the bytes that one client may hold.
func (a *Account) Share() int64 { return a.budget.share }

// Release removes n bytes that were charged or reserved, because they were sent or freed.
func (a *Account) Release(n int64) {
	if a == nil {
		return
	}
	used := a.used.Add(-n)
	if credit := a.credit.Load(); credit > creditFor(used)+chunkBytes || credit > freeBytes && used <= freeBytes/2 {
		a.settle()
	}
}

// creditFor returns the credit that an account needs for that many bytes.
func creditFor(used int64) int64 {
	chunks := (used - freeBytes + chunkBytes - 1) / chunkBytes
	return freeBytes + max(chunks, 0)*chunkBytes
}

// settle adapts the credit to the bytes held, and disconnects the slowest peers if the
// budget is exceeded.
func (a *Account) settle() {
	b := a.budget
	b.mu.Lock()
	before := b.mu.used
	b.settleLocked(a)
	var slow []*Account
	if b.mu.used > before {
		slow = b.slowLocked(time.Now(), nil)
	}
	b.mu.Unlock()
	disconnect(slow)
}

func (b *Budget) settleLocked(a *Account) {
	b.settleCreditLocked(a)
	b.grantReservationsLocked()
	b.tight.Store(b.mu.used > b.limit/2)
}

func (b *Budget) settleCreditLocked(a *Account) {
	for {
		credit := a.credit.Load()
		want := creditFor(a.used.Load())
		if want == credit {
			break
		}
		a.credit.Store(want)
		b.mu.used += want - credit
		if a.ending {
			b.mu.ending += want - credit
		}
		if a.left {
			continue
		}
		c := a.client.Load()
		b.useLocked(c, want-credit)
		if want > freeBytes {
			c.holders[a] = struct{}{}
		} else {
			delete(c.holders, a)
		}
		if a.closed && want == freeBytes {
			b.leaveLocked(a, 0)
			a.left = true
		}
	} // repeat: a charge may come between the two loads
}

// useLocked adds credit to what a client uses.
func (b *Budget) useLocked(c *clientMemory, credit int64) {
	c.used += credit
	c.tight.Store(c.used > b.share/4*3)
}

// Tight reports whether more than half of the budget, or three quarters of the client's
// share, is used, so that idle connections must free their buffers. Otherwise these could
// use up the share, and the client's reservations would wait forever.
func (a *Account) Tight() bool {
	return a != nil && (a.budget.tight.Load() || a.client.Load().tight.Load())
}

// BelowShare reports whether the client holds less than its share, not counting own bytes
// of this account: one message can always be finished.
func (a *Account) BelowShare(own int64) bool {
	b := a.budget
	b.mu.Lock()
	if a.closed || a.client.Load().used-own < b.share {
		b.mu.Unlock()
		return true
	}
	slow := b.slowLocked(time.Now(), a)
	b.mu.Unlock()
	disconnect(slow)
	return false
}

// slowLocked returns the accounts to disconnect so that the budget is kept, and so is the
// share of the client of waits, an account that waits for a reservation, if it is not nil.
// It marks them as ending.
func (b *Budget) slowLocked(now time.Time, waits *Account) (slow []*Account) {
	take := func(a *Account, over int64) bool {
		if a == nil || a == waits {
			return false
		}
		if over <= MaxMessageBytes && now.UnixNano()-a.since.Load() < int64(patience) {
			return false
		}
		a.ending = true
		b.mu.ending += a.credit.Load() - freeBytes
		b.mu.cut++
		slow = append(slow, a)
		return true
	}
	if waits != nil && waits.client.Load().used >= b.share {
		take(slowestOf(nil, waits.client.Load(), now), 0)
	}
	room := int64(0) // a reservation needs at least one byte
	if waits != nil {
		room = 1
	}
	for over := b.mu.used - b.mu.ending + room - b.limit; over > 0; over = b.mu.used - b.mu.ending + room - b.limit {
		var slowest *Account
		for _, c := range b.mu.clients {
			slowest = slowestOf(slowest, c, now)
		}
		if !take(slowest, over) {
			break
		}
	}
	return slow
}

// slowestOf returns the account whose peer has made no progress for longest.
func slowestOf(slowest *Account, c *clientMemory, now time.Time) *Account {
	for a := range c.holders {
		if a.ending || a.closed || a.waiting.Load() <= 0 {
			continue
		}
		a.since.CompareAndSwap(0, now.UnixNano()) // Moved and Await may run concurrently
		if slowest == nil || a.since.Load() < slowest.since.Load() {
			slowest = a
		}
	}
	return slowest
}

func disconnect(slow []*Account) {
	for _, a := range slow {
		a.cut()
	}
}

// Await records that the peer is to read n bytes, or has begun to send them.
func (a *Account) Await(n int) {
	if a != nil && n > 0 && a.waiting.Add(int64(n)) == int64(n) {
		a.moved.Store(0)
		a.since.Store(time.Now().UnixNano())
	}
}

// Moved records that n of the awaited bytes were transferred.
func (a *Account) Moved(n int) {
	if a == nil || n == 0 {
		return
	}
	switch {
	case a.waiting.Add(-int64(n)) <= 0:
		a.since.Store(0)
	case a.moved.Add(int64(n)) >= chunkBytes:
		a.moved.Store(0)
		a.since.Store(time.Now().UnixNano())
	}
}

// Close closes the account. Its bytes count for its client, and for the budget, until they
// are released: handlers may hold them after the connection has ended. Close is idempotent.
func (a *Account) Close() {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	a.since.Store(0)
	a.failReservationsLocked()
	b.settleLocked(a)
	if !a.left && a.credit.Load() == freeBytes {
		b.leaveLocked(a, 0)
		a.left = true
	}
}
