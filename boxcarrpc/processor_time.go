package boxcarrpc

import (
	"context"
	"math"
	"runtime"
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
	useHalfLife = 100 * time.Millisecond
	// The shares are computed at most this often.
	useInterval = 5 * time.Millisecond
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
	use   float64      // nanoseconds, decayed; guarded by the budget's mutex
}

// processorTime is the state of the processors of a Budget.
type processorTime struct {
	processors int
	start      time.Time
	next       atomic.Int64 // when the shares are computed next, in nanoseconds since start

	// Guarded by the budget's mutex.
	computed int64 // when the shares were last computed
	free     int   // permits
	waiting  []*Permit
}

func (p *processorTime) init() {
	p.processors = runtime.GOMAXPROCS(0)
	p.free, p.start = max(1, p.processors-1), time.Now()
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
	b := a.budget
	at := int64(to.Sub(b.processors.start))
	if next := b.processors.next.Load(); at >= next && b.processors.next.CompareAndSwap(next, at+int64(useInterval)) {
		b.shareTime(at)
	}
}

// shareTime computes the shares of the clients.
func (b *Budget) shareTime(at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	decay := math.Exp2(-float64(at-b.processors.computed) / float64(useHalfLife))
	b.processors.computed = at
	total, active := 0.0, 0
	for key, c := range b.mu.clients {
		c.time.use = c.time.use*decay + float64(c.time.spent.Swap(0))
		total += c.time.use
		switch {
		case c.time.use >= leastUse*fullUse:
			active++
		case c.accounts == 0:
			delete(b.mu.clients, key)
		}
	}
	fair := fairUse(total, active, b.processors.processors)
	for _, c := range b.mu.clients {
		c.time.over.Store(c.time.use > fair)
	}
}

// A Permit allows one goroutine to work for a client.
type Permit struct {
	account *Account
	granted chan struct{}
	held    bool        // guarded by the budget's mutex
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
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
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
	a := r.account
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
	p := &Permit{account: a, granted: make(chan struct{})}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processors.waiting = append(b.processors.waiting, p)
	b.grantLocked()
	return p
}

// grantLocked grants the free permits.
func (b *Budget) grantLocked() {
	t := &b.processors
	for t.free > 0 && len(t.waiting) > 0 {
		least := 0
		for i, p := range t.waiting {
			if p.account.client.use() < t.waiting[least].account.client.use() {
				least = i
			}
		}
		p := t.waiting[least]
		copy(t.waiting[least:], t.waiting[least+1:])
		t.waiting[len(t.waiting)-1] = nil
		t.waiting = t.waiting[:len(t.waiting)-1]
		p.held = true
		t.free--
		close(p.granted)
	}
}

// use returns the present use of the client.
func (c *budgetClient) use() float64 { return c.time.use + float64(c.time.spent.Load()) }

// End gives the permit back, or withdraws the request for it. It is idempotent, and does
// nothing for nil.
func (p *Permit) End() {
	if p == nil {
		return
	}
	b := p.account.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if !p.held {
		for i, other := range b.processors.waiting {
			if other == p {
				b.processors.waiting = append(b.processors.waiting[:i], b.processors.waiting[i+1:]...)
				break
			}
		}
		return
	}
	p.held = false
	b.processors.free++
	b.grantLocked()
}
