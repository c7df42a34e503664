package collection

import (
	"context"

	"docstore/queue"
)

// Ready is Status.Ready, without its cost.
func (c *Collection) Ready() bool { return c.serving.Load().health.gap.Load() == nil }

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

// wait calls until with the serving store, and again if that store is replaced.
func (c *Collection) wait(until func(*store) error) error {
	_, err := ask(c, func(s *store) (struct{}, error) { return struct{}{}, until(s) })
	return err
}
