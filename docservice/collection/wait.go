package collection

import (
	"context"

	"docstore/queue"
)

// Ready is Status.Ready, without its cost.
func (c *Collection) Ready() bool { return c.serving.Load().health.gap.Load() == nil }

// Faults are Status.Faults, without the cost of the others.
func (c *Collection) Faults() []Fault {
	faults, _ := c.serving.Load().health.listFaults()
	return faults
}

// WaitReady waits until the collection is ready, as of Status.
func (c *Collection) WaitReady(ctx context.Context) error {
	return c.wait(func(s *store) error {
		return s.health.waitUntil(ctx, func() bool { return s.health.gap.Load() == nil })
	})
}

// WaitFor waits until Get answers the entry at the address or a later one, so that a
// program can read its own writes.
func (c *Collection) WaitFor(ctx context.Context, at queue.Address) error {
	return c.wait(func(s *store) error {
		return s.health.waitUntil(ctx, func() bool { return s.health.includes(at) })
	})
}

// WaitPosition waits until the index includes the queue up to a position.
func (c *Collection) WaitPosition(ctx context.Context, at queue.Position) error {
	return c.wait(func(s *store) error {
		return s.health.waitUntil(ctx, func() bool { return s.health.mu.tail.position.Next.Compare(at.Next) >= 0 })
	})
}

// SetBehind tells whether entries are known to exist that have not arrived in the queue's
// directory. While that is so, the collection is not ready, and no id is "not found". After
// SetBehind(false) the collection becomes ready when the index includes all entries in the
// directory.
func (c *Collection) SetBehind(behind bool) {
	c.behind.Store(behind)
	c.serving.Load().follower.endUnknown()
	if next := c.next(); next != nil {
		next.follower.endUnknown()
	}
}

// wait calls until with the serving store, and again if that store is replaced.
func (c *Collection) wait(until func(*store) error) error {
	_, err := ask(c, func(s *store) (struct{}, error) { return struct{}{}, until(s) })
	return err
}
