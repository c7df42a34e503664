package simulate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"docstore/docservice"
	"docstore/internal/simulate/chance"
)

const (
	// loadCallers is the number of batches that a client asks for at a time.
	loadCallers = 4
	// loadBatches is the number of batches of each of them.
	loadBatches = 3
	// loadTime bounds a batch. It is shorter than the time after which a reservation of memory fails.
	loadTime = 8 * time.Second
)

// checkLoad asks for more than the servers have memory for. The clients share a machine, and with it the
// memory of one client. Responses wait for each other, but each batch succeeds.
func (w *world) checkLoad(clients []*client, adapters []*adapterClient) {
	var asking sync.WaitGroup
	ask := func(c *asker, batch func(ctx context.Context, ids []string) error) {
		for n := range loadCallers {
			d := w.chance.Next(fmt.Sprint("load ", n, " of ", c.name))
			asking.Go(func() { c.load(&d, batch) })
		}
	}
	for _, c := range clients {
		ask(&c.asker, c.loadBatch)
	}
	for _, c := range adapters {
		ask(&c.asker, c.loadBatch)
	}
	asking.Wait()
}

// load asks for several batches in a row.
func (c *asker) load(d *chance.Draw, batch func(ctx context.Context, ids []string) error) {
	for range loadBatches {
		ids, began := c.randomIDs(d), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), loadTime)
		if err := batch(ctx, ids); err != nil {
			c.w.account.wrongf("load", "%s: a batch of %d ids failed after %v: %v", c.name, len(ids), time.Since(began), err)
		}
		cancel()
	}
}

// loadBatch gets documents by Boxcar.
func (c *client) loadBatch(ctx context.Context, ids []string) error {
	q := c.question()
	return c.client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		return c.loaded(q, ids[i], document, err)
	})
}

// loadBatch gets documents over gRPC.
func (c *adapterClient) loadBatch(ctx context.Context, ids []string) error {
	p := c.begin()
	for len(ids) > 0 {
		answers, err := c.batch(ctx, ids)
		if err != nil {
			return err
		}
		for i, answer := range answers {
			if err := c.loaded(p.question, ids[i], answer.GetDocument(), docservice.StatusError(answer.GetStatus(), ids[i])); err != nil {
				return err
			}
		}
		ids = ids[len(answers):]
	}
	return nil
}

// loaded judges the answer for an id. A server of a column has only some shards.
func (c *asker) loaded(q question, id string, document []byte, err error) error {
	switch {
	case err == nil:
		c.w.account.found(q, id, document)
	case errors.Is(err, docservice.ErrNotFound):
		c.w.account.missing(q, id)
	case c.single == nil || !errors.Is(err, docservice.ErrMoved):
		return err
	}
	return nil
}
