package docservice

import (
	"context"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// A batch of entries is applied to the index when no entry is waiting in the queue, or when
// it has this size: large enough to amortize the cost of applying it, and small enough not
// to use much memory.
const (
	maxTailBatchEntries = 4096
	maxTailBatchBytes   = 1 << 20
)

// positionKey is the index key of the position. No document has the empty id.
var positionKey = []byte{}

// tailState is the progress of the tail.
type tailState struct {
	position queue.Position // included in the index
	// current: no entry was waiting in the queue at the last poll.
	current bool
	// idle: no entry was applied for a while, for example because a file is missing.
	idle     bool
	applied  uint64    // entries applied since the collection was opened
	appended time.Time // when the newest applied entry was appended
	// reachedEnd: the tail has reached the end of the queue once. Entries before that are
	// as old as the queue and say nothing about the delay until documents are visible.
	reachedEnd bool
	// visibleAfter is the delay from append to index of the newest entry after that; 0
	// before.
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
		return queue.Position{}, errors.Wrap(err, "read the stored position")
	}
	return position, nil
}

// runTail follows the queue until the collection is closed. An error is recorded as a
// fault, and reading is retried from the committed position: a sound copy of a damaged
// segment, or free disk space, may arrive at any time.
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

// tail follows the queue from the committed position until an error.
func (s *store) tail(ctx context.Context) error {
	s.mu.Lock()
	from := s.mu.tail.position
	s.mu.Unlock()
	pending := tailBatch{store: s}
	err := s.queue.Tail(ctx, from, pending.add)
	if pending.refused {
		return err
	}
	// The entries before the fault are valid.
	if commitErr := pending.commit(); commitErr != nil {
		return commitErr
	}
	return err
}

// tailBatch collects entries of the queue for the index.
type tailBatch struct {
	store    *store
	batch    lsm.Batch
	bytes    int            // of ids and values in batch
	next     queue.Position // after the last entry in batch
	appended time.Time      // of the last entry in batch
	soonest  expiries       // of the entries in batch
	refused  bool           // writing a batch failed: no later batch may be written
	loads    []cacheLoad    // for the cache, of the entries in batch
	buffer   []byte
}

// add adds an entry, and commits if no entry is waiting.
func (b *tailBatch) add(e queue.Entry) error {
	if !validIDBytes(len(e.ID)) {
		return errors.Wrapf(ErrBadID, "queue entry at %v: id of %d bytes", e.Address, len(e.ID))
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

// noteLoads records the cache operations for an entry: delete the previous version, store
// the new one.
func (b *tailBatch) noteLoads(e queue.Entry, entry indexEntry) {
	if before, ok := b.store.cachedBefore(e.ID); ok && before.address != e.Address {
		b.loads = append(b.loads, cacheLoad{store: b.store, entry: before, remove: true})
	}
	if !e.Deleted {
		b.loads = append(b.loads, cacheLoad{store: b.store, id: string(e.ID), entry: entry})
	}
}

// commit applies the collected entries and the position after them atomically.
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
		return errors.Wrap(err, "write to the index")
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

// apply writes a batch to the index; soonest is the earliest expiry of its entries.
func (s *store) apply(batch *lsm.Batch, soonest expiries) error {
	s.indexing.Lock()
	defer s.indexing.Unlock()
	s.indexing.soonest.add(uint32(soonest))
	return s.index.Apply(batch)
}

// committed records that the index has followed the queue up to next.
func (s *store) committed(next queue.Position, entries int, appended time.Time) {
	s.setQueueID(next)
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
		s.logger.Info("reading the queue again", "position", next.Next.String())
	}
}

// tailState returns the progress of the tail.
func (s *store) tailState() tailState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tail
}

// caughtUp is called by the queue, in the goroutine of the tail, when no entry is waiting.
// Every entry has then been committed, because the last one had More == false.
func (s *store) caughtUp(at queue.Position) {
	s.mu.Lock()
	reached, headKnown := s.mu.reached, !s.mu.head.target.IsZero()
	s.mu.Unlock()
	reached = reached || s.atEnd(at)
	if !headKnown {
		s.readHead() // after listing the segments: the head file is copied before them
	}
	s.mu.Lock()
	s.mu.tail.current = true
	s.mu.stoppedBy = nil
	resumed := s.mu.faults.clearTail() && !s.awaits(at.Next.Segment)
	s.stateChanged()
	s.mu.Unlock()
	if ready := s.reachedEnd(at, reached); resumed && !ready {
		s.logger.Info("reading the queue again", "position", at.Next.String())
	}
}

// reachedEnd records that the tail has read the queue to its end, if it has caught up at
// the position, the position is at the end of the segments here and not before the end that
// the head file named, and no later segment is quarantined. It reports whether this made
// the collection ready.
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

// atEnd reports whether a position is after all entries here. If no segment has arrived, or
// one is missing before others, no entry is waiting although the end is not reached.
func (s *store) atEnd(at queue.Position) bool {
	end := s.queue.End()
	return !end.IsZero() && at.Next.Compare(end.Next) >= 0
}

// tailStopped records why reading the queue failed.
func (s *store) tailStopped(err error) {
	s.mu.Lock()
	at := s.mu.tail.position.Next
	s.mu.Unlock()
	if !errors.Is(err, queue.ErrDiverged) {
		at = queue.Address{} // the error has the address
	}
	fault := s.faultOf(err, at)
	s.mu.Lock()
	s.mu.reached, s.mu.stoppedBy = false, err
	s.mu.tail.current = false
	news := s.mu.faults.setTail(fault)
	s.stateChanged()
	s.mu.Unlock()
	if news {
		s.logger.Error("reading the queue failed; serving the entries read so far and retrying",
			"segment", fault.Segment, "offset", fault.Offset, "path", fault.Path, "reason", fault.Reason)
	}
}

// sleep waits for d. It returns false if ctx ended.
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
