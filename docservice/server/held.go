package server

import (
	"context"
	"slices"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/readiness"
	"docstore/docservice/server/livepage"
)

// Held is a collection that a server holds: all of its shards, or some.
type Held interface {
	Name() string
	// Shards returns the shards that are served here.
	Shards() []Shard
	// Column describes the replica set whose shards the server holds; nil: it holds all. A
	// server of a replica set is drained while it starts and is not ready: clients may know its
	// address from before a restart, and use the other replicas meanwhile.
	Column() *livepage.Column
	// Lookup returns the shard that has the id if any has, or why it is not here.
	Lookup(id string) (c *collection.Collection, problem string)
	// Lister lists all ids of the collection.
	Lister() Lister
	Close() error
}

// Shard is a shard that is served.
type Shard struct {
	*collection.Collection
	Files    readiness.Report   // the state of its files
	Manifest *livepage.Manifest // the served one; nil: the files are those of a local queue
}

// isReady reports whether a collection is ready: the shards that the placement assigned to the
// replica set at the start, or all shards.
func isReady(h Held) bool {
	if column := h.Column(); column != nil {
		return column.Report.IsReady()
	}
	return !slices.ContainsFunc(h.Shards(), func(s Shard) bool { return !s.IsReady() })
}

// IsReady reports whether the shard has the files of the target, and has read them to their end.
func (s Shard) IsReady() bool { return s.Files.IsReady() && s.Ready() }

// Lister lists the ids of a collection.
type Lister interface {
	Name() string
	Scan(ctx context.Context, o docservice.ScanOptions, fn func(id []byte, answer collection.Answer) error) error
	Count(ctx context.Context, prefix []byte) (int64, error)
}

// local is the Held of a queue directory.
type local struct{ *collection.Collection }

func (l local) Shards() []Shard {
	return []Shard{{Collection: l.Collection, Files: readiness.Report{State: readiness.Ready}}}
}

func (l local) Column() *livepage.Column { return nil }

func (l local) Lookup(string) (*collection.Collection, string) { return l.Collection, "" }

func (l local) Lister() Lister { return l.Collection }
