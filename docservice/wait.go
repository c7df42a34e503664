package docservice

import (
	"context"

	"docstore/queue"
)

// Ready is Status.Ready; asking costs nothing.
func (c *Collection) Ready() bool { return c.following.Load() }

// WaitReady waits until the collection is ready, as of Status.
func (c *Collection) WaitReady(ctx context.Context) error {
	return c.waitUntil(ctx, func() bool { return c.following.Load() })
}

// WaitFor waits until what was appended at the address is what Get answers, so
// that a program that writes can read what it has written.
func (c *Collection) WaitFor(ctx context.Context, at queue.Address) error {
	return c.waitUntil(ctx, func() bool { return at.Compare(c.mu.tail.position.Next) < 0 })
}

// waitUntil waits until a condition holds, which is asked with c.mu locked
// whenever tail or faults have changed.
func (c *Collection) waitUntil(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		done, changed := holds(), c.mu.changed
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.alive.Done():
			return ErrClosed
		}
	}
}

// notify wakes those who wait. c.mu must be locked.
func (c *Collection) notify() {
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}
