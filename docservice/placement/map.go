package placement

import (
	"context"
	"fmt"

	"docstore/queue/shard"
)

// Map is the placement of the shards of a collection. Its JSON is the value of a key in
// etcd (package etcdmap). A Map is immutable once it is shared.
type Map struct {
	Collection string `json:"collection"`
	// Generation is the incarnation of the collection's record; a map is valid for one.
	Generation string       `json:"generation"`
	Layout     shard.Layout `json:"layout"`
	// Epoch is increased by each change.
	Epoch uint64 `json:"epoch"`
	// Shards has an element for each shard of the layout.
	Shards []Place `json:"assignments"`
}

// Place is the assignment of one shard.
type Place struct {
	// Column holds and serves the shard. It is empty before the first assignment.
	Column string `json:"column"`
	// Next is the column that prepares to serve the shard, or empty. When it serves, the
	// move is complete: Column becomes Next.
	Next string `json:"next,omitempty"`
	// Previous is the column that held the shard before Column, or empty. Its servers may
	// still answer.
	Previous string `json:"previous,omitempty"`
}

// Check returns an error if a Map is not valid.
func (m *Map) Check() error {
	if err := m.Layout.Check(); err != nil {
		return fmt.Errorf("placement: map of %q: %w", m.Collection, err)
	}
	if len(m.Shards) != m.Layout.Shards {
		return fmt.Errorf("placement: map of %q has assignments of %d shards: want %d", m.Collection, len(m.Shards), m.Layout.Shards)
	}
	return nil
}

// Holds returns the shards that the servers of a column serve or prepare to serve, in
// ascending order.
func (m *Map) Holds(column string) []int {
	var shards []int
	for i, p := range m.Shards {
		if p.Column == column || p.Next == column {
			shards = append(shards, i)
		}
	}
	return shards
}

// Source provides the current map to clients and servers.
type Source interface {
	// Map returns the current map, and a channel that is closed when there is another one.
	// The map is nil until the first one is known.
	Map() (*Map, <-chan struct{})
	// Refresh reads the map again if it is not newer than epoch. Errors mean that the
	// last map stays in use.
	Refresh(ctx context.Context, epoch uint64) error
}
