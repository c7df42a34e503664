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
	current bool
	// idle: nothing was applied for a while, as when the tail waits for a file.
	idle     bool
	applied  uint64    // entries since the collection was opened
	appended time.Time // of the newest entry applied, in the queue
	// reachedEnd: the end of the queue was reached once. An entry from before is as old
	// as the queue, which says nothing about how soon documents become visible here.
	reachedEnd bool
	// visibleAfter is how long the newest entry since then took to the index; 0 before.
	visibleAfter time.Duration
}

// readPosition returns the position stored in an index, the start for a new one.
func readPosition(index *lsm.DB) (queue.Position, error) {
	value, err := index.GetVerified(nil, positionKey)
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
func (s *store) runTail(ctx context.Context) {
	for {
		err := s.tail(ctx)
		if ctx.Err() != nil {
			return
		}
		s.tailStopped(err)
		if !sleep(ctx, s.options.RetryInterval) {
			return
		}
	}
}

// tail follows the queue from the committed position until something is wrong.
func (s *store) tail(ctx context.Context) error {
	s.mu.Lock()
	from := s.mu.tail.position
	s.mu.Unlock()
	pending := tailBatch{store: s}
	err := s.queue.Tail(ctx, from, pending.add)
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
	store    *store
	batch    lsm.Batch
	bytes    int            // of ids and values in batch
	next     queue.Position // behind the last entry in batch
	appended time.Time      // of the last entry in batch
	soonest  expiries       // of the entries in batch
	refused  bool           // the index did not take a batch: nothing after it may go there
	loads    []cacheLoad    // for the cache, of the entries in batch
	buffer   []byte
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
	if b.store.options.Cache != nil {
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
	if before, ok := b.store.cachedBefore(e.ID); ok && before.address != e.Address {
		b.loads = append(b.loads, cacheLoad{store: b.store, entry: before, remove: true})
	}
	if !e.Deleted {
		b.loads = append(b.loads, cacheLoad{store: b.store, id: string(e.ID), entry: entry})
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
		err = b.store.apply(&b.batch, b.soonest)
	}
	if err != nil {
		b.refused = true
		return errors.Wrap(err, "writing to the index")
	}
	b.store.committed(b.next, entries, b.appended)
	for _, load := range b.loads {
		b.store.options.Cache.enqueue(load)
	}
	b.loads = b.loads[:0]
	b.batch.Reset()
	b.bytes, b.soonest = 0, 0
	return nil
}

// apply writes to the index entries of which the first expires soonest.
func (s *store) apply(batch *lsm.Batch, soonest expiries) error {
	s.indexing.Lock()
	defer s.indexing.Unlock()
	s.indexing.soonest.add(uint32(soonest))
	return s.index.Apply(batch)
}

// committed records that the index has followed the queue up to next.
func (s *store) committed(next queue.Position, entries int, appended time.Time) {
	s.noteQueueID(next)
	s.mu.Lock()
	s.mu.tail.position = next
	s.mu.tail.applied += uint64(entries)
	s.mu.tail.appended = appended
	if s.mu.tail.reachedEnd {
		s.mu.tail.visibleAfter = max(0, s.options.Now().Sub(appended))
	}
	s.mu.tail.current, s.mu.tail.idle = false, false
	s.mu.stoppedBy = nil
	resumed := s.mu.faults.clearTail()
	s.stateChanged()
	s.mu.Unlock()
	if resumed {
		s.logger.Info("the queue is read on", "position", next.Next.String())
	}
}

// tailState tells how far the tail has come.
func (s *store) tailState() tailState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tail
}

// caughtUp is called by the queue, in the goroutine of the tail, when nothing
// is waiting; every entry has then been committed, as the last one came with
// More == false.
func (s *store) caughtUp(at queue.Position) {
	s.mu.Lock()
	reached, headKnown := s.mu.reached, !s.mu.head.target.IsZero()
	s.mu.Unlock()
	reached = reached || s.atEnd(at)
	if !headKnown {
		s.readHead() // after the segments were listed: it arrives before any of them
	}
	s.mu.Lock()
	s.mu.tail.current = true
	s.mu.stoppedBy = nil
	resumed := s.mu.faults.clearTail() && !s.awaits(at.Next.Segment)
	s.stateChanged()
	s.mu.Unlock()
	if ready := s.reachedEnd(at, reached); resumed && !ready {
		s.logger.Info("the queue is read on", "position", at.Next.String())
	}
}

// reachedEnd notes that the tail has read the queue to its end if it stands at the
// position with nothing waiting, the end of the segments here and not before the end that
// the head file named, and no segment behind it was set aside. It reports whether
// that made the collection ready.
func (s *store) reachedEnd(at queue.Position, atEnd bool) bool {
	s.mu.Lock()
	if atEnd && s.mu.tail.current && s.mu.tail.position.SamePlace(at) && s.mu.head.reaches(at) && !s.awaits(at.Next.Segment) {
		s.mu.reached, s.mu.tail.reachedEnd = true, true
	}
	before := s.gap.Load()
	s.stateChanged()
	ready := before != nil && s.gap.Load() == nil
	if ready {
		s.mu.faults.lost = nil
	}
	s.mu.Unlock()
	if ready {
		s.logger.Info("the queue has been read to its end", "position", at.Next.String())
	}
	return ready
}

// atEnd tells whether a position is behind everything that is here. Nothing may
// be waiting and it is not: where no segment has arrived yet, or one is missing
// before others.
func (s *store) atEnd(at queue.Position) bool {
	end := s.queue.End()
	return !end.IsZero() && at.Next.Compare(end.Next) >= 0
}

// tailStopped records why the queue cannot be read on for now.
func (s *store) tailStopped(err error) {
	s.mu.Lock()
	at := s.mu.tail.position.Next
	s.mu.Unlock()
	if !errors.Is(err, queue.ErrDiverged) {
		at = queue.Address{} // the error says where
	}
	fault := s.faultOf(err, at)
	s.mu.Lock()
	s.mu.reached, s.mu.stoppedBy = false, err
	s.mu.tail.current = false
	news := s.mu.faults.setTail(fault)
	s.stateChanged()
	s.mu.Unlock()
	if news {
		s.logger.Error("the queue cannot be read on; serving what has been read",
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
