package router

import (
	"context"

	"docstore/docservice"
	"docstore/docservice/collection"
)

// Collection lists the ids of a collection, as collection.Collection does.
type Collection struct {
	router *Router
	name   string
}

// Collection returns a collection.
func (r *Router) Collection(name string) *Collection { return &Collection{r, name} }

// Name returns the name.
func (c *Collection) Name() string { return c.name }

// Scan is Router.Scan of decoded documents.
func (c *Collection) Scan(ctx context.Context, o docservice.ScanOptions, fn func(id []byte, answer collection.Answer) error) error {
	return c.router.Scan(ctx, []byte(c.name), o, 0, fn)
}

// Count returns the number of ids with a prefix.
func (c *Collection) Count(ctx context.Context, prefix []byte) (count int64, err error) {
	err = c.Scan(ctx, docservice.ScanOptions{Prefix: prefix, IDsOnly: true}, func([]byte, collection.Answer) error {
		count++
		return nil
	})
	return count, err
}
