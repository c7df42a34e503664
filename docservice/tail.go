package docservice

import (
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// A batch of entries goes to the index when nothing more is waiting in the
// queue, or when it is this large: large enough that the cost of applying one
// is small beside its entries', small enough to be no burden on memory.
const (
	maxTailBatchEntries = 4096
	maxTailBatchBytes   = 1 << 20
)

// positionKey is where the index keeps how far it has followed the queue. No
// document has the empty id.
var positionKey = []byte{}

// tailState is how far the tail has come.
type tailState struct {
	position queue.Position // in the index
	// current: nothing was waiting in the queue when it was last looked at.
	current  bool
	applied  uint64    // entries since the collection was opened
	appended time.Time // of the newest entry applied, in the queue
	// visibleAfter is how long that took from there to the index.
	visibleAfter time.Duration
}

// readPosition returns the position stored in an index, the start for a new one.
func readPosition(index *lsm.DB) (queue.Position, error) {
	value, err := index.Get(nil, positionKey)
	if errors.Is(err, lsm.ErrNotFound) {
		return queue.Position{}, nil
	}
	if err != nil {
		return queue.Position{}, err
	}
	var position queue.Position
	if err := position.UnmarshalBinary(value); err != nil {
		return queue.Position{}, errors.Wrap(err, "the stored position")
	}
	return position, nil
}

// runTail follows the queue until the collection is closed. An error is
// recorded as a fault, and what is at the committed position then is tried
// again and again: a good copy of a damaged segment, or room on the disk, may
// come at any time.
func (c *Collection) runTail(ctx context.Context) {
	for {
		err := c.tail(ctx)
		if ctx.Err() != nil {
			return
		}
		c.tailStopped(err)
		if !sleep(ctx, c.options.RetryInterval) {
			return
		}
	}
}

// tail follows the queue from the committed position until something is wrong.
func (c *Collection) tail(ctx context.Context) error {
	c.mu.Lock()
	from := c.mu.tail.position
	c.mu.Unlock()
	pending := tailBatch{collection: c}
	err := c.queue.Tail(ctx, from, pending.add)
	if pending.refused {
		return err
	}
	// What came before the fault is as good as ever.
	if commitErr := pending.commit(); commitErr != nil {
		return commitErr
	}
	return err
}

// tailBatch gathers entries of the queue for the index.
type tailBatch struct {
	collection *Collection
	batch      lsm.Batch
	bytes      int            // of ids and values in batch
	next       queue.Position // behind the last entry in batch
	appended   time.Time      // of the last entry in batch
	soonest    expiries       // of the entries in batch
	refused    bool           // the index did not take a batch: nothing after it may go there
	loads      []cacheLoad    // for the cache, of the entries in batch
	buffer     []byte
}

// add takes one entry, and commits if none is waiting behind it.
func (b *tailBatch) add(e queue.Entry) error {
	if !validIDBytes(len(e.ID)) {
		return errors.Wrapf(ErrBadID, "queue entry at %v with an id of %d bytes", e.Address, len(e.ID))
	}
	entry := indexEntry{address: e.Address, expiry: expirySeconds(e.Expires), storedBytes: uint32(e.StoredBytes)}
	var err error
	if e.Deleted {
		err = b.batch.Delete(e.ID)
	} else {
		b.soonest.add(entry.expiry)
		b.buffer = entry.append(b.buffer[:0])
		err = b.batch.Set(e.ID, b.buffer)
	}
	if err != nil {
		return err
	}
	if b.collection.options.Cache != nil {
		b.noteLoads(e, entry)
	}
	b.bytes += len(e.ID) + indexEntryBytes
	b.next, b.appended = e.Next, e.Appended
	if e.More && b.batch.Len() < maxTailBatchEntries && b.bytes < maxTailBatchBytes {
		return nil
	}
	return b.commit()
}

// noteLoads takes down what an entry means for the cache: the version before goes
// and the new one comes.
func (b *tailBatch) noteLoads(e queue.Entry, entry indexEntry) {
	if before, ok := b.collection.cachedBefore(e.ID); ok && before.address != e.Address {
		b.loads = append(b.loads, cacheLoad{collection: b.collection, entry: before, remove: true})
	}
	if !e.Deleted {
		b.loads = append(b.loads, cacheLoad{collection: b.collection, id: string(e.ID), entry: entry})
	}
}

// commit applies what has been gathered together with the position behind it,
// in one atomic step.
func (b *tailBatch) commit() error {
	entries := b.batch.Len()
	if entries == 0 {
		return nil
	}
	var err error
	if b.buffer, err = b.next.AppendBinary(b.buffer[:0]); err == nil {
		err = b.batch.Set(positionKey, b.buffer)
	}
	if err == nil {
		err = b.collection.apply(&b.batch, b.soonest)
	}
	if err != nil {
		b.refused = true
		return errors.Wrap(err, "writing to the index")
	}
	b.collection.committed(b.next, entries, b.appended)
	for _, load := range b.loads {
		b.collection.options.Cache.enqueue(load)
	}
	b.loads = b.loads[:0]
	b.batch.Reset()
	b.bytes, b.soonest = 0, 0
	return nil
}

// apply writes to the index entries of which the first expires soonest.
func (c *Collection) apply(batch *lsm.Batch, soonest expiries) error {
	c.indexing.Lock()
	defer c.indexing.Unlock()
	c.indexing.soonest.add(uint32(soonest))
	return c.index.Apply(batch)
}

// committed records that the index has followed the queue up to next.
func (c *Collection) committed(next queue.Position, entries int, appended time.Time) {
	c.noteQueueID(next)
	c.mu.Lock()
	c.mu.tail.position = next
	c.mu.tail.applied += uint64(entries)
	c.mu.tail.appended = appended
	c.mu.tail.visibleAfter = max(0, c.options.Now().Sub(appended))
	c.mu.tail.current = false
	resumed := c.mu.faults.clearTail()
	c.notify()
	c.mu.Unlock()
	if resumed {
		c.logger.Info("the queue is read on", "position", next.Next.String())
	}
}

// caughtUp is called by the queue, in the goroutine of the tail, when nothing
// is waiting; every entry has then been committed, as the last one came with
// More == false.
func (c *Collection) caughtUp(at queue.Position) {
	reached := c.following.Load() || c.atEnd(at)
	c.mu.Lock()
	c.mu.tail.current = true
	resumed := c.mu.faults.clearTail() && !c.awaits(at.Next.Segment)
	c.notify()
	c.mu.Unlock()
	if ready := c.reachedEnd(at, reached); resumed && !ready {
		c.logger.Info("the queue is read on", "position", at.Next.String())
	}
}

// reachedEnd makes the collection ready if the tail stands at the position with
// nothing waiting, that is the end of what is here, and no segment behind it was
// set aside. It reports whether the collection became ready.
func (c *Collection) reachedEnd(at queue.Position, reached bool) bool {
	c.mu.Lock()
	reached = reached && c.mu.tail.current && c.mu.tail.position == at && !c.awaits(at.Next.Segment)
	ready := reached && !c.following.Swap(true)
	c.notify()
	c.mu.Unlock()
	if ready {
		c.logger.Info("the queue has been read to its end", "position", at.Next.String())
	}
	return ready
}

// atEnd tells whether a position is behind everything that is here. Nothing may
// be waiting and it is not: where no segment has arrived yet, or one is missing
// before others.
func (c *Collection) atEnd(at queue.Position) bool {
	end := c.queue.End()
	return !end.IsZero() && at.Next.Compare(end.Next) >= 0
}

// tailStopped records why the queue cannot be read on for now.
func (c *Collection) tailStopped(err error) {
	c.mu.Lock()
	at := c.mu.tail.position.Next
	c.mu.Unlock()
	if !errors.Is(err, queue.ErrDiverged) {
		at = queue.Address{} // the error says where
	}
	fault := c.faultOf(err, at)
	c.mu.Lock()
	c.following.Store(false)
	c.mu.tail.current = false
	news := c.mu.faults.setTail(fault)
	c.notify()
	c.mu.Unlock()
	if news {
		c.logger.Error("the queue cannot be read on; serving what has been read",
			"segment", fault.Segment, "offset", fault.Offset, "path", fault.Path, "reason", fault.Reason)
	}
}

// sleep waits, and reports whether the context is still good.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
