package placement

import (
	"context"
	"sync"
)

// Current is a Source whose map is set by its owner. The zero value has none. It is safe for
// concurrent use.
type Current struct {
	mu struct {
		sync.Mutex
		current *Map
		changed chan struct{}
	}
}

// Set replaces the map.
func (c *Current) Set(m *Map) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.current = m
	if c.mu.changed != nil {
		close(c.mu.changed)
	}
	c.mu.changed = make(chan struct{})
}

// Map implements Source.
func (c *Current) Map() (*Map, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.changed == nil {
		c.mu.changed = make(chan struct{})
	}
	return c.mu.current, c.mu.changed
}

// Refresh implements Source: the owner's last map is current.
func (c *Current) Refresh(context.Context, uint64) error { return nil }
