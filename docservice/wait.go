package docservice

import (
	"context"

	"docstore/queue"
)

// Ready is Status.Ready, without its cost.
func (c *Collection) Ready() bool { return c.serving.Load().gap.Load() == nil }

// WaitReady waits until the collection is ready, as of Status.
func (c *Collection) WaitReady(ctx context.Context) error {
	return c.wait(func(s *store) error {
		return s.waitUntil(ctx, func() bool { return s.gap.Load() == nil })
	})
}

// WaitFor waits until Get answers the entry at the address or a later one, so that a
// program can read its own writes.
func (c *Collection) WaitFor(ctx context.Context, at queue.Address) error {
	return c.wait(func(s *store) error {
		return s.waitUntil(ctx, func() bool { return at.Compare(s.mu.tail.position.Next) < 0 })
	})
}

// wait calls until with the serving store, and again if that store is replaced.
func (c *Collection) wait(until func(*store) error) error {
	_, err := ask(c, func(s *store) (struct{}, error) { return struct{}{}, until(s) })
	return err
}

// waitUntil waits until a condition holds. It evaluates the condition with s.mu locked
// after each change of the state.
func (s *store) waitUntil(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		done, changed := holds(), s.mu.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.alive.Done():
			return ErrClosed
		}
	}
}

// stateChanged recomputes the gap from the state of tail and faults, and wakes the waiters.
// s.mu must be locked.
func (s *store) stateChanged() {
	s.gap.Store(s.knowledge().gap())
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// knowledge returns the state that decides whether the index is complete. s.mu must be
// locked.
func (s *store) knowledge() knowledge {
	return knowledge{
		reached:    s.mu.reached,
		stopped:    s.mu.faults.tail != nil,
		forked:     isFork(s.mu.stoppedBy),
		truncated:  isTruncation(s.mu.stoppedBy),
		damaged:    s.mu.faults.index != nil,
		headUnread: s.mu.head.failure != nil && !s.mu.reached,
		stale:      s.mu.head.isStale(s.options.Now(), s.options.MaxStaleness),
	}
}
