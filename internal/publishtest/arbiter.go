// Package publishtest has an in-memory publish.Arbiter with a virtual clock, and the tests
// that each publish.Arbiter passes.
package publishtest

import (
	"context"
	"sync"
	"time"

	"docstore/queue/publish"
)

// Lease is the time after which a stopped Process loses its claims.
const Lease = 10 * time.Second

// Arbiter is an arbiter in memory with a virtual clock. Programs use it by a Process.
type Arbiter struct {
	mu       sync.Mutex
	now      time.Duration
	revision int64
	values   map[string]versioned
	claims   map[string]claim
	numbers  map[string]uint64
	changed  chan struct{} // closed by Notify
}

type versioned struct {
	value   []byte
	version int64
}

type claim struct {
	fence  int64
	holder *Process
}

// New returns an empty Arbiter.
func New() *Arbiter {
	return &Arbiter{values: map[string]versioned{}, claims: map[string]claim{}, numbers: map[string]uint64{}, changed: make(chan struct{})}
}

// Lose removes everything, as the loss of a data directory does.
func (a *Arbiter) Lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.values)
	clear(a.claims)
	clear(a.numbers)
}

// Advance advances the clock. Stopped processes do not renew their claims, all others do.
func (a *Arbiter) Advance(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now += d
	for key, c := range a.claims {
		if !c.holder.stopped {
			c.holder.renewed = a.now
		}
		if a.now-c.holder.renewed > Lease {
			delete(a.claims, key)
		}
	}
}

// Process is the arbiter as a program sees it.
type Process struct {
	arbiter *Arbiter
	stopped bool
	renewed time.Duration
	// Before is called before each operation, if it is not nil. An error of it is returned
	// after the operation was executed: a lost response.
	Before func(operation string) error
}

var _ publish.Arbiter = (*Process)(nil)

// Process returns a new process.
func (a *Arbiter) Process() *Process { return &Process{arbiter: a} }

// Stop makes the process stop renewing its claims, or continue.
func (p *Process) Stop(stopped bool) {
	p.arbiter.mu.Lock()
	defer p.arbiter.mu.Unlock()
	if p.stopped = stopped; !stopped {
		p.renewed = p.arbiter.now
	}
}

// do executes an operation.
func (p *Process) do(operation string, execute func(a *Arbiter)) (err error) {
	if p.Before != nil {
		err = p.Before(operation)
	}
	p.arbiter.mu.Lock()
	defer p.arbiter.mu.Unlock()
	execute(p.arbiter)
	return err
}

// Get implements publish.Arbiter.
func (p *Process) Get(_ context.Context, key string) (value []byte, version int64, err error) {
	err = p.do("get", func(a *Arbiter) { value, version = a.values[key].value, a.values[key].version })
	return value, version, err
}

// Swap implements publish.Arbiter.
func (p *Process) Swap(_ context.Context, key string, version int64, value []byte, fence int64) (swapped bool, err error) {
	err = p.do("swap", func(a *Arbiter) {
		if swapped = a.values[key].version == version && (fence == 0 || a.claims[key].fence == fence); swapped {
			a.revision++
			a.values[key] = versioned{value, a.revision}
		}
	})
	return swapped, err
}

// Remove implements publish.Arbiter.
func (p *Process) Remove(_ context.Context, key string) error {
	return p.do("remove", func(a *Arbiter) { delete(a.values, key) })
}

// Claim implements publish.Arbiter. It never waits for the claim of another process.
func (p *Process) Claim(_ context.Context, key string, _ time.Duration) (fence int64, release func(), err error) {
	held := false
	err = p.do("claim", func(a *Arbiter) {
		if _, held = a.claims[key]; !held {
			a.revision++
			fence, p.renewed = a.revision, a.now
			a.claims[key] = claim{fence, p}
		}
	})
	release = func() {
		_ = p.do("release", func(a *Arbiter) {
			if a.claims[key].fence == fence {
				delete(a.claims, key)
			}
		})
	}
	if err == nil && held {
		return 0, nil, publish.Refused("another process holds the collection")
	}
	if err != nil && !held {
		release()
	}
	return fence, release, err
}

// Notify implements publish.Arbiter.
func (p *Process) Notify(_ context.Context, key string, number uint64) error {
	return p.do("notify", func(a *Arbiter) {
		a.numbers[key] = number
		close(a.changed)
		a.changed = make(chan struct{})
	})
}

// Wait implements publish.Arbiter.
func (p *Process) Wait(ctx context.Context, key string, after uint64) (uint64, error) {
	for {
		p.arbiter.mu.Lock()
		number, changed := p.arbiter.numbers[key], p.arbiter.changed
		p.arbiter.mu.Unlock()
		if number > after {
			return number, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
