package server

import (
	"context"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server/livepage"
)

// Held is a collection that a server holds: all of it, or some of its shards.
type Held interface {
	Name() string
	// Collections returns what the service has of the collection: itself, or its shards.
	Collections() []*collection.Collection
	// Readiness reports whether the collection is ready.
	Readiness() CollectionReadiness
	// Ready is Readiness().Ready, without its cost.
	Ready() bool
	// Report adds the collection to the status of the page. describe describes one of
	// Collections.
	Report(status *livepage.Status, describe Describe)
	// Lookup returns the collection that has the id if any has, or why it is not here.
	Lookup(id string) (c *collection.Collection, problem string)
	// Lister lists all ids of the collection.
	Lister() Lister
	// Replicated reports whether clients know other servers of the collection. Then the
	// daemon is drained while it starts and the collection is not ready: clients may know
	// its address from before a restart, and use the others meanwhile.
	Replicated() bool
	Close() error
}

// Describe describes a collection on the page.
type Describe func(*collection.Collection, CollectionReadiness) livepage.Collection

// Lister lists the ids of a collection.
type Lister interface {
	Name() string
	Scan(ctx context.Context, o docservice.ScanOptions, fn func(id []byte, answer collection.Answer) error) error
	Count(ctx context.Context, prefix []byte) (int64, error)
}

// local is the Held of a queue directory.
type local struct{ *collection.Collection }

func (l local) Collections() []*collection.Collection { return []*collection.Collection{l.Collection} }

func (l local) Readiness() CollectionReadiness { return DescribeReadiness(l.Status()) }

func (l local) Report(status *livepage.Status, describe Describe) {
	status.Collections = append(status.Collections, describe(l.Collection, l.Readiness()))
}

func (l local) Lookup(string) (*collection.Collection, string) { return l.Collection, "" }

func (l local) Lister() Lister { return l.Collection }

func (l local) Replicated() bool { return false }
