package gateway

import (
	"context"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/sharded"
)

// Collection lists the ids of a sharded collection, as collection.Collection does.
type Collection struct {
	gateway *Gateway
	client  *sharded.Client
	name    string
}

// Collection returns a sharded collection, nil if there is none of that name.
func (g *Gateway) Collection(name string) *Collection {
	client := g.client(name)
	if client == nil {
		return nil
	}
	return &Collection{gateway: g, client: client, name: name}
}

// Name returns the name.
func (c *Collection) Name() string { return c.name }

// Scan calls fn for each id in byte order, over all shards. Unlike that of a
// collection.Collection, the list is not of one moment: it is read page by page.
func (c *Collection) Scan(ctx context.Context, o docservice.ScanOptions, fn func(id []byte, answer collection.Answer) error) error {
	limit, seen := o.Limit, 0
	return c.gateway.forward(ctx, func() error {
		for {
			o.Limit = docservice.DefaultScanIDs
			if limit > 0 {
				o.Limit = min(o.Limit, limit-seen)
			}
			next, err := c.client.Scan(ctx, o, func(id string, document []byte, err error) error {
				seen++
				return fn([]byte(id), collection.Answer{Document: document, Err: err})
			})
			if err != nil || next == nil || limit > 0 && seen >= limit {
				return err
			}
			o.After = next
		}
	})
}

// Count returns the number of ids with a prefix.
func (c *Collection) Count(ctx context.Context, prefix []byte) (count int64, err error) {
	err = c.Scan(ctx, docservice.ScanOptions{Prefix: prefix, IDsOnly: true}, func([]byte, collection.Answer) error {
		count++
		return nil
	})
	return count, err
}
