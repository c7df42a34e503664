package budget

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Budget also shares the processors among the clients: a small request must not wait for
// the work of clients that send much.
//
// The servers measure the processor time that they spend for each client. Recent time
// counts more: the use of a client halves every useHalfLife. While all clients together
// need more than half of the processors, a client that uses more than its fair share needs
// a permit for each batch of frames. There is one permit less than there are processors. A
// long step, as the decoding of a large document, always needs one. So a processor is
// always free for the other clients. A permit that becomes free goes to the waiting client
// with the smallest use.
//
// While the clients need less than half of the processors, or one client is alone, batches
// need no permit and cost one atomic addition.
const (
	useHalfLife = 20 * time.Millisecond
	// The shares are computed at most this often.
	useInterval = 2 * time.Millisecond
	// The permit for a batch of frames ends after this time, because a handler may block.
	batchTime = 5 * time.Millisecond
	// A step that processes more bytes takes a fraction of a millisecond and is long.
	longStepBytes = 256 << 10
	// A client that uses less than this fraction of a processor does not count as active.
	leastUse = 0.001
)

// A clientTime is the processor time of a client.
type clientTime struct {
	spent atomic.Int64 // nanoseconds since the shares were last computed
	over  atomic.Bool  // the client is above its share

	// Guarded by the mutex of processorTime.
	use      float64 // nanoseconds, decayed
	accounts int     // number of open accounts
}

// processorTime is the state of the processors of a Budget. It has its own mutex: many
// waiting reservations may contend for that of the Budget.
type processorTime struct {
	processors int
	start      time.Time
	next       atomic.Int64 // when the shares are computed next, in nanoseconds since start

	mu struct {
		sync.Mutex
		clients  map[Client]*clientTime
		computed int64 // when the shares were last computed
		free     int   // permits
		waiting  []*Permit
	}
}

func (p *processorTime) init() {
	p.processors = runtime.GOMAXPROCS(0)
	p.start = time.Now()
	p.mu.clients, p.mu.free = make(map[Client]*clientTime), max(1, p.processors-1)
}

// join adds an account of a client.
func (p *processorTime) join(a *Account, key Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.clients[key]
	if c == nil {
		c = new(clientTime)
		p.mu.clients[key] = c
	}
	c.accounts++
	a.time.Store(c)
}

// leave removes an account of a client. The client is kept until its use has decayed.
func (p *processorTime) leave(a *Account, key Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := a.time.Load()
	if c.accounts--; c.accounts == 0 && c.used() == 0 {
		delete(p.mu.clients, key)
	}
}

// fairUse returns the use above which a client is above its share, for a total use of that
// many active clients.
func fairUse(total float64, active, processors int) float64 {
	all := fullUse * float64(processors)
	if total <= all/2 || active < 2 {
		return math.Inf(1)
	}
	return max(total, 3*all/4) / float64(active)
}

// fullUse is the use of a client that always uses one processor.
const fullUse = float64(useHalfLife) / math.Ln2

// Spend records that the process worked for the client from one time to another.
func (a *Account) Spend(from, to time.Time) {
	a.time.Load().spent.Add(int64(to.Sub(from)))
	p := &a.budget.processors
	at := int64(to.Sub(p.start))
	if next := p.next.Load(); at >= next && p.next.CompareAndSwap(next, at+int64(useInterval)) {
		p.share(at)
	}
}

// share computes the shares of the clients.
func (p *processorTime) share(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	decay := math.Exp2(-float64(at-p.mu.computed) / float64(useHalfLife))
	p.mu.computed = at
	total, active := 0.0, 0
	for key, c := range p.mu.clients {
		c.use = c.use*decay + float64(c.spent.Swap(0))
		total += c.use
		switch {
		case c.use >= leastUse*fullUse:
			active++
		case c.accounts == 0:
			delete(p.mu.clients, key)
		}
	}
	fair := fairUse(total, active, p.processors)
	for _, c := range p.mu.clients {
		c.over.Store(c.use > fair)
	}
}

// used returns the present use of the client.
func (c *clientTime) used() float64 { return c.use + float64(c.spent.Load()) }

// A Permit allows one goroutine to work for a client.
type Permit struct {
	account *Account
	granted chan struct{}
	held    bool        // guarded by the mutex of processorTime
	timer   *time.Timer // ends the permit for a batch of frames
}

// Batch waits until a batch of frames of the client may be processed. The caller calls End
// of the Permit, which may be nil, before it waits for more frames.
func (a *Account) Batch() *Permit {
	if !a.time.Load().over.Load() {
		return nil
	}
	p := a.request()
	<-p.granted
	processors := &a.budget.processors
	processors.mu.Lock()
	defer processors.mu.Unlock()
	p.timer = time.AfterFunc(batchTime, p.End)
	return p
}

// Compute runs a step for the request of ctx that processes about n bytes and waits for
// nothing. It waits before the step while other clients need the processors, and then
// returns an error if ctx ends. Without a server's context it only runs the step.
func Compute(ctx context.Context, n int, step func()) error {
	r := reservationOf(ctx)
	if r == nil {
		step()
		return nil
	}
	a := r.Account
	if n > longStepBytes || a.time.Load().over.Load() {
		p := a.request()
		defer p.End()
		select {
		case <-p.granted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	begun := time.Now()
	defer func() { a.Spend(begun, time.Now()) }()
	step()
	return nil
}

// request requests a permit.
func (a *Account) request() *Permit {
	request := &Permit{account: a, granted: make(chan struct{})}
	p := &a.budget.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.waiting = append(p.mu.waiting, request)
	p.grantLocked()
	return request
}

// grantLocked grants the free permits.
func (p *processorTime) grantLocked() {
	for p.mu.free > 0 && len(p.mu.waiting) > 0 {
		least := 0
		for i, w := range p.mu.waiting {
			if w.account.time.Load().used() < p.mu.waiting[least].account.time.Load().used() {
				least = i
			}
		}
		w := p.mu.waiting[least]
		p.mu.waiting = slices.Delete(p.mu.waiting, least, least+1)
		w.held = true
		p.mu.free--
		close(w.granted)
	}
}

// End gives the permit back, or withdraws the request for it. It is idempotent, and does
// nothing for nil.
func (w *Permit) End() {
	if w == nil {
		return
	}
	p := &w.account.budget.processors
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.held {
		w.held = false
		p.mu.free++
		p.grantLocked()
	} else if i := slices.Index(p.mu.waiting, w); i >= 0 {
		p.mu.waiting = slices.Delete(p.mu.waiting, i, i+1)
	}
}
