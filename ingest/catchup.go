package ingest

import (
	"bytes"
	"fmt"

	"docstore/queue"
	"docstore/queue/shardset"
)

// CatchUp puts the records of an input into a set of shards, each once, also those that are read
// again after a crash, when some shards have them. It is not safe for concurrent use.
//
//	c := ingest.CatchUp{Writer: w}
//	from, err := c.Resume(opener) // or not: the input begins
//	for each batch that opener.Open(ctx, from) returns, for each record:
//		has, err := c.Has(batch, i)
//		err = c.Put(record) // unless has
//	err = c.End()
type CatchUp struct {
	Writer *shardset.Writer

	from      []byte     // reading began behind it
	differ    bool       // the cursor of a shard is another one
	positions []Position // of the shards; nil: it has no record of the rest
	left      int        // positions that are not nil
	cursors   [][]byte   // of the shards
	// interleaved is the opener if cursors are not in one order; nil: they are.
	interleaved Interleaved
	next        int // the position to compare next
	// The last record that was asked for.
	batch  *Batch
	index  int
	cursor []byte
}

// Resume continues with the input of the last Writer, and returns the cursor behind which it
// is read. Call it before the first Put.
func (c *CatchUp) Resume(opener Opener) (from []byte, err error) {
	c.cursors = c.Writer.Cursors()
	if c.from = c.cursors[0]; len(c.cursors) > 1 {
		if c.from, err = opener.Earliest(c.cursors); err != nil {
			return nil, err
		}
	}
	c.interleaved, _ = opener.(Interleaved)
	c.positions = make([]Position, len(c.cursors))
	for i, cursor := range c.cursors {
		if bytes.Equal(cursor, c.from) {
			continue
		}
		c.differ = true
		if len(cursor) == 0 {
			continue
		}
		if c.positions[i], err = opener.Position(cursor); err != nil {
			return nil, fmt.Errorf("ingest: the cursor of %s: %w", c.Writer.Dir(i), err)
		}
		c.left++
	}
	c.Writer.Resume(c.differ)
	return c.from, nil
}

// Has reports whether Records[i] of the batch is in its shard already. It is called for each
// record in order before it is put.
func (c *CatchUp) Has(b *Batch, i int) (bool, error) {
	if !c.differ { // the usual case
		return false, nil
	}
	first := c.batch == nil && c.interleaved == nil
	has, err := c.has(c.Writer.Layout().Shard(b.Records[i].ID), b, i)
	if err != nil || c.left > 0 {
		return has, err
	}
	c.differ = false
	if first {
		// No shard has more than the records up to from. Some have a cursor of an earlier
		// input, which must not be compared with those of this one.
		return has, c.Writer.Checkpoint(c.from)
	}
	// The next Put has the first cursor that states the content of the shards.
	c.Writer.CaughtUp()
	return has, nil
}

// Put puts a record that Has has not found.
func (c *CatchUp) Put(r queue.Record) (err error) {
	if c.left > 0 && r.Cursor != nil {
		if r.Cursor, err = c.cursorFor(c.Writer.Layout().Shard(r.ID), r.Cursor); err != nil {
			return err
		}
	}
	return c.Writer.Put(r)
}

// End reports that the input has no record after the last argument of Has.
func (c *CatchUp) End() error {
	if c.left == 0 || c.batch == nil {
		return nil
	}
	c.differ, c.left = false, 0
	return c.Writer.Checkpoint(c.cursor)
}

func (c *CatchUp) has(shard int, b *Batch, i int) (bool, error) {
	if c.interleaved != nil {
		return c.hasInterleaved(shard, b, i)
	}
	another := b != c.batch || i <= c.index // batches are reused
	c.batch, c.index, c.cursor = b, i, b.AppendCursor(c.cursor[:0], i)
	if another {
		for s, p := range c.positions { // also of shards without records
			if p != nil && !b.Included(p, i) {
				c.drop(s)
			}
		}
	}
	p := c.positions[shard]
	if p == nil {
		return false, nil
	}
	if b.Included(p, i) {
		return true, nil
	}
	c.drop(shard)
	return false, nil
}

// hasInterleaved is has for a source whose records may arrive in another order than before. A
// record that a shard lacks says nothing about later ones: the position of a shard is dropped
// when the cursor that was reached includes it. One shard is compared for each record.
func (c *CatchUp) hasInterleaved(shard int, b *Batch, i int) (bool, error) {
	c.batch, c.index, c.cursor = b, i, b.AppendCursor(c.cursor[:0], i)
	p := c.positions[shard]
	has := p != nil && b.Included(p, i)
	for range c.positions {
		s := c.next
		c.next = (c.next + 1) % len(c.positions)
		if c.positions[s] == nil {
			continue
		}
		_, within, err := c.interleaved.Combine(c.cursor, c.cursors[s])
		if err != nil {
			return false, fmt.Errorf("ingest: the cursor of a shard: %w", err)
		}
		if within {
			c.drop(s)
		}
		break
	}
	return has, nil
}

// cursorFor returns the cursor of a record that is put into a shard: it also includes the
// records that the shard has and that were not reached yet.
func (c *CatchUp) cursorFor(shard int, cursor []byte) ([]byte, error) {
	if c.interleaved == nil || c.positions[shard] == nil {
		return cursor, nil
	}
	combined, _, err := c.interleaved.Combine(cursor, c.cursors[shard])
	return combined, err
}

func (c *CatchUp) drop(shard int) {
	c.positions[shard] = nil
	c.left--
}
